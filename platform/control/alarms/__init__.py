"""Alarms: counts by kind, organization and day of what an operator must look at, with what each
means and what to do. Every package above may raise one, and list rows on the page of alarms."""

"""Limits of spending and alerts in the console: the forms, and what the partial shows."""

"""Prices and money: pure functions, no Django, no clock, no float."""

"""Exports and erasures of a person's data. It imports every package that stores personal data; none
of them imports it."""

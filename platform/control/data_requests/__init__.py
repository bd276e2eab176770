"""Exports and erasures of a person's data. It knows every package that keeps something about
people; none of them knows it."""

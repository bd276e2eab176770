"""Mutants of the books' own code: made by rule, drawn by lot, run against the simulator."""

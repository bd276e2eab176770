"""One module per skill; each draws samples from a seeded random generator."""

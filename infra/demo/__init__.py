"""Demo data of a fresh platform. Each part may be repeated and is then left as it is."""

"""What follows from the events: rollups, postings, seals and archives, each read by a cursor that
misses nothing and repeats nothing. Recurring tasks and `penstock` commands call it; nothing below
knows it."""

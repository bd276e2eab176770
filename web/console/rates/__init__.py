"""Rate limits in the console: how they stand, and the form for projects and keys."""

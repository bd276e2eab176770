"""What was done, read by people."""

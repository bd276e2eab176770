"""The demo model: a small Llama that Penstock ships, and the scripts that make and judge it."""

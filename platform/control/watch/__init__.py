"""How control itself is: whether it lives, whether it may be sent requests, and its metrics. What
runs asks this room; nothing beneath it knows it."""

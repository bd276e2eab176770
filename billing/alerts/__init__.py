"""Telling customers in time: a budget's percentage reached, a balance that runs low, spending far
above the usual. Each is found by a look at figures that others keep, and told once, by mail and
webhook. Only collection and web may import it."""

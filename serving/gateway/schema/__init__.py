"""Closed, bounded types of request bodies: nothing reaches an engine except through them."""

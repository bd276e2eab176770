"""Customers' webhooks: signed messages to addresses of theirs, through the outbox.

Every layer above may `emit`; what a kind means is in `kinds.py`. `egress.py` is the one way out.
"""

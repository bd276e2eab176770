"""What must happen outside: a row in the transaction that decides it, delivered until done.

Every layer above may `enqueue`; what delivers a kind is named in an app's `deliveries.py`.
"""

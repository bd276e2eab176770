"""Customers' webhooks: signed events to addresses of theirs, through the outbox. Every package
above may `send_event`."""

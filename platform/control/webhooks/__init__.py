"""Customers' webhooks: signed events sent to their URLs through the outbox. Every package above may
`send_event`."""

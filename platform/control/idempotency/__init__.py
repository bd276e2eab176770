"""Idempotency keys: which request is the one of a key, and its sealed answer, for a day. The
gateways ask over the internal API; people turn it on and off."""

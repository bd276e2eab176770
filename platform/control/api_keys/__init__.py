"""API keys: create, change, rotate, revoke, and authenticate the management API by them. Gateways
know keys by their digests, from the change feed."""

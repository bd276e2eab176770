"""API keys: create, change, rotate and revoke them, and authenticate the management API. Gateways
receive the digests of keys from the change feed."""

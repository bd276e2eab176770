"""The way to replicas: our own connections on the private network, aiohttp's over TLS."""

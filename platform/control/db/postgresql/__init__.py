"""Django's PostgreSQL backend with a pool of connections for each kind of work."""

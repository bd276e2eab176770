"""The transactional outbox: calls to external services are stored in the transaction that decides
on them, and retried until they are delivered. Every package above may `enqueue`; an app's config
names the module that delivers."""

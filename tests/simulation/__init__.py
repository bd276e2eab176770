"""The books, run against a world that is out to break them: model gateways, an operator and the
beat call the real services on a real PostgreSQL, interleaved statement by statement as a seed says.
`python -m tests.simulation` runs it; tests of payments use its double of Stripe."""

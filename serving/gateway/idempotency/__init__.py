"""Requests with an `Idempotency-Key`: each key is executed once, and its response is replayed.

`InferenceHandler` calls `IdempotencyGuard.run_once` for a request that has the header; others never
come here. Start reading at `guard.py`.
"""

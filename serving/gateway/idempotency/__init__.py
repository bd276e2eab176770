"""Requests that name an `Idempotency-Key`: each key is worked on once, and its answer given again.
The application calls `IdempotencyGuard.serve`; requests without the header never come here.
"""

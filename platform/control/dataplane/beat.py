"""What recurs for idempotency keys, in seconds."""

SCHEDULE = {
    "forget idempotency keys": {
        "task": "idempotency.forget",
        "schedule": 600,
        "options": {"expires": 600},
    },
}

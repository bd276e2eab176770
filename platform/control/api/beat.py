"""What recurs for the management API, in seconds."""

SCHEDULE = {
    "forget idempotent requests": {
        "task": "api.forget_requests",
        "schedule": 3600,
        "options": {"expires": 3600},
    },
}

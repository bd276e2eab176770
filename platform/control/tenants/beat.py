"""What recurs in tenants, in seconds."""

SCHEDULE = {
    "forget ended sessions": {
        "task": "tenants.forget_ended_sessions",
        "schedule": 3600,
        "options": {"expires": 3600},
    },
}

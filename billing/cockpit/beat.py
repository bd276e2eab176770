"""What recurs in the cockpit, in seconds."""

SCHEDULE = {
    "keep revenue of sealed days": {
        "task": "cockpit.keep_revenue",
        "schedule": 3600,
        "options": {"expires": 3600},
    },
}

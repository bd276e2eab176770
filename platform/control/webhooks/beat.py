"""What recurs in webhooks, in seconds."""

SCHEDULE = {
    "trim webhooks": {"task": "webhooks.trim", "schedule": 3600, "options": {"expires": 3600}},
}

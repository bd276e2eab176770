"""What recurs for rate limits, in seconds."""

SCHEDULE = {
    "place organizations in limit tiers": {
        "task": "limits.place",
        "schedule": 60,
        "options": {"expires": 60},
    },
}

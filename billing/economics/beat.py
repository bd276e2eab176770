"""What recurs in economics, in seconds."""

SCHEDULE = {
    "reconcile engines": {"task": "economics.reconcile", "schedule": 3600},
    "thin engine samples": {"task": "economics.thin_samples", "schedule": 86_400},
    "go on with replays": {
        "task": "economics.replay",
        "schedule": 30,
        "options": {"expires": 30},
    },
}

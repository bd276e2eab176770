"""What recurs in collection, in seconds."""

SCHEDULE = {
    "look at what is overdue": {
        "task": "collection.look",
        "schedule": 60,
        "options": {"expires": 60},
    },
    "look for what was missed": {
        "task": "collection.look_for_missed",
        "schedule": 3600,
        "options": {"expires": 3600},
    },
}

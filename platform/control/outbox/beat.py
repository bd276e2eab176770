"""What recurs in the outbox, in seconds. The worker is woken by whoever enqueues; the beat finds
what waited for its time, and what nobody could wake it for."""

DELIVER_SECONDS = 5

SCHEDULE = {
    "deliver outbox": {
        "task": "outbox.deliver",
        "schedule": DELIVER_SECONDS,
        "options": {"expires": DELIVER_SECONDS},
    },
    "trim outbox": {"task": "outbox.trim", "schedule": 3600, "options": {"expires": 3600}},
}

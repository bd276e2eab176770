"""What recurs in privacy, in seconds."""

RUN_SECONDS = 5

SCHEDULE = {
    "do errands": {
        "task": "privacy.run_waiting",
        "schedule": RUN_SECONDS,
        "options": {"expires": RUN_SECONDS},
    },
    "trim copies": {"task": "privacy.trim", "schedule": 3600, "options": {"expires": 3600}},
}

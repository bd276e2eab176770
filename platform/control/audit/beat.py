"""What recurs in the audit, in seconds."""

SEAL_SECONDS = 5

SCHEDULE = {
    "seal deeds": {
        "task": "audit.seal",
        "schedule": SEAL_SECONDS,
        "options": {"expires": SEAL_SECONDS},
    },
    "prove the audit": {"task": "audit.prove", "schedule": 3600, "options": {"expires": 3600}},
}

"""What recurs in the mailbox, in seconds."""

SCHEDULE = {
    "trim mailbox": {"task": "mail.trim", "schedule": 3600, "options": {"expires": 3600}},
}

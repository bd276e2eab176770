"""What recurs in invoicing, in seconds."""

SCHEDULE = {
    "close months": {
        "task": "invoicing.close_months",
        "schedule": 600,
        "options": {"expires": 600},
    },
    "settle invoices": {
        "task": "invoicing.settle",
        "schedule": 600,
        "options": {"expires": 600},
    },
}

"""What recurs in payments, in seconds. A look at everything begins at 03:40 UTC (`nights.py`)."""

SCHEDULE = {
    "look at Stripe's webhooks": {
        "task": "payments.process_events",
        "schedule": 10,
        "options": {"expires": 10},
    },
    "look at open payments": {
        "task": "payments.sync_open",
        "schedule": 60,
        "options": {"expires": 60},
    },
    "top up low balances": {
        "task": "payments.auto_top_up",
        "schedule": 15,
        "options": {"expires": 15},
    },
    "reconcile with Stripe": {
        "task": "payments.reconcile",
        "schedule": 150,
        "options": {"expires": 150},
    },
    "forget Stripe's webhooks": {"task": "payments.forget_events", "schedule": 86_400},
}

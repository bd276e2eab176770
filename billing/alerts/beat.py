"""What recurs in alerts, in seconds. What waited for its turn too long is dropped: the next look
finds the same."""

LOOK_SECONDS = 10

SCHEDULE = {
    "look at budgets and balances": {
        "task": "alerts.look",
        "schedule": LOOK_SECONDS,
        "options": {"expires": LOOK_SECONDS},
    },
    "look at spending": {
        "task": "alerts.look_at_spending",
        "schedule": 60,
        "options": {"expires": 60},
    },
    "sum up the days before": {
        "task": "alerts.sum_days",
        "schedule": 3600,
        "options": {"expires": 3600},
    },
}

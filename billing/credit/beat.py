"""What recurs in credit, in seconds."""

SCHEDULE = {
    "void abandoned leases": {"task": "credit.void_abandoned_leases", "schedule": 600},
    "forget closed leases": {"task": "credit.forget_leases", "schedule": 3600},
    "tell what was paid": {"task": "credit.tell_paid", "schedule": 3600},
    "expire credit grants": {"task": "credit.expire_grants", "schedule": 60},
}

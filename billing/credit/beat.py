"""What recurs in credit, in seconds."""

SCHEDULE = {
    "void abandoned leases": {"task": "credit.void_abandoned_leases", "schedule": 600},
    "expire credit grants": {"task": "credit.expire_grants", "schedule": 60},
}

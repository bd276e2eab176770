"""What recurs in following, in seconds. What waited for its turn too long is dropped: the next one
does its work."""

FOLLOW_SECONDS = 2

SCHEDULE = {
    f"follow {name}": {
        "task": "following.follow",
        "args": (name,),
        "schedule": FOLLOW_SECONDS,
        "options": {"expires": FOLLOW_SECONDS},
    }
    for name in ("rollups", "postings", "keys")
} | {
    "watch followers": {
        "task": "following.watch",
        "schedule": 60,
        "options": {"expires": 60},
    },
    "close and seal days": {
        "task": "following.finish_days",
        "schedule": 300,
        "options": {"expires": 300},
    },
    "trim minutes": {
        "task": "following.trim_minutes",
        "schedule": 3600,
        "options": {"expires": 3600},
    },
    "check integrity": {
        "task": "following.check_integrity",
        "schedule": 3600,
        "options": {"expires": 3600},
    },
}

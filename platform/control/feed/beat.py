"""What recurs for the change feed."""

from celery.schedules import crontab

SCHEDULE = {
    "compact-feed": {"task": "control.feed.tasks.compact_feed", "schedule": crontab(minute="17")}
}

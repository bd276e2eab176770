"""What recurs for the change feed."""

from celery.schedules import crontab

SCHEDULE = {"compact-feed": {"task": "feed.compact", "schedule": crontab(minute="17")}}

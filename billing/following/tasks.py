"""What followers do by themselves. Each step is made once, however often a task runs."""

from collections import Counter

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from billing.following import follow as following
from billing.following.closing import close_days
from billing.following.integrity import check_and_tell
from billing.following.pace import Pace
from billing.following.sealing import seal_days
from billing.following.selectors import has_stopped, late_followers
from billing.following.trimming import trim_minutes as trim
from control.alarms.count import OPERATOR, raise_alarms

PATIENTLY = {"soft_time_limit": 1800, "time_limit": 1860}
"""Of tasks whose statements may take 15 minutes (`sealing.PATIENTLY`)."""
PACES = {name: Pace() for name in following.FOLLOWERS}


@shared_task(name="following.follow")
def follow(name: str) -> None:
    """Let a follower read on, at its pace."""
    PACES[name].run(lambda: following.follow(name, now=timezone.now()))


@shared_task(name="following.watch")
def watch() -> None:
    """Raise an alarm for each follower that lags behind, and one where they wait for proof."""
    now = timezone.now()
    late = Counter((OPERATOR, f"late_follower_{name}") for name in late_followers(now))
    if late and has_stopped():
        late[OPERATOR, "database_replaced"] += 1
    raise_alarms(late, now=now)


@shared_task(name="following.finish_days", **PATIENTLY)
def finish_days() -> None:
    """Close the days that are over, and post and seal those that every follower has passed."""
    now = timezone.now()
    close_days(now=now)
    seal_days(now=now)


@shared_task(name="following.trim_minutes")
def trim_minutes() -> None:
    """Delete sums by the minute that are kept no longer."""
    trim(now=timezone.now(), days=settings.CONFIG.minute_usage_retention_days)


@shared_task(name="following.check_integrity", **PATIENTLY)
def check_integrity() -> None:
    """Prove the books; a check that fails is an alarm."""
    check_and_tell(now=timezone.now())

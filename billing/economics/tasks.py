"""Recurring work on engines' counters, and the replays that operators asked for."""

from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from billing.economics import services
from billing.economics.judging import judge_missed_hours
from billing.economics.replay_runs import advance

REPLAY_FOR = timedelta(seconds=40)
"""A task begins no day of a replay after this: with the longest day it still ends in time."""


@shared_task(name="economics.thin_samples")
def thin_samples() -> None:
    """Keep old samples by the hour."""
    services.thin_samples(now=timezone.now())


@shared_task(name="economics.reconcile")
def reconcile() -> None:
    """Compare what engines counted with the usage events, hours that were missed included; what
    differs beyond reason is an alarm."""
    judge_missed_hours(now=timezone.now())


@shared_task(name="economics.replay")
def replay() -> None:
    """Go on with replays, day by day; what is left is for the next task."""
    until = timezone.now() + REPLAY_FOR
    while timezone.now() < until and advance(now=timezone.now()):
        pass

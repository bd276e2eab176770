"""Recurring work on payments. Each runs harmlessly twice at once, and is nothing without Stripe."""

import time

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from billing.payments.errors import StripeAway
from billing.payments.inbox import forget_events, process_inbox
from billing.payments.nights import reconcile_due
from billing.payments.services.automatic import run_auto_top_ups
from billing.payments.syncing import sync_open

RUN_SECONDS = 60
RECONCILE_SECONDS = 120
"""Shorter than a task may run by as much as a step of it may take."""


@shared_task(name="payments.process_events")
def process_events() -> None:
    """Look at what webhooks name, until none waits or the time is up."""
    if settings.CONFIG.stripe is None:
        return
    ends = time.monotonic() + RUN_SECONDS
    while process_inbox(now=timezone.now()) and time.monotonic() < ends:
        pass


@shared_task(name="payments.sync_open")
def sync_open_payments() -> None:
    """Ask Stripe about payments and refunds that no news came of."""
    if settings.CONFIG.stripe is None:
        return
    try:
        sync_open(now=timezone.now())
    except StripeAway:
        return  # the next run asks again


@shared_task(name="payments.auto_top_up")
def top_up_low_balances() -> None:
    """Ask for the top-ups of balances under their threshold."""
    if settings.CONFIG.stripe is not None:
        run_auto_top_ups(now=timezone.now())


@shared_task(name="payments.reconcile")
def reconcile_with_stripe() -> None:
    """Hold our books against Stripe's, as far as the time allows; the next run goes on."""
    if settings.CONFIG.stripe is None:
        return
    try:
        reconcile_due(now=timezone.now(), seconds=RECONCILE_SECONDS)
    except StripeAway:
        return  # the next run goes on from there


@shared_task(name="payments.forget_events")
def forget_old_events() -> None:
    """Delete webhooks that were done with weeks ago."""
    forget_events(now=timezone.now())

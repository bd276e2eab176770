"""Recurring work on credit. Each deed is made once under a lock, however often a task runs."""

from celery import shared_task
from django.utils import timezone

from billing.credit.services.grants import expire_grants
from billing.credit.services.leases import forget_leases, void_abandoned_leases
from billing.credit.standing import tell_untold


@shared_task(name="credit.void_abandoned_leases")
def void_leases() -> None:
    """Void the leases of gateways that vanished a day ago."""
    void_abandoned_leases(now=timezone.now())


@shared_task(name="credit.expire_grants")
def close_grants() -> None:
    """Take back what is left of expired grants."""
    expire_grants(now=timezone.now())


@shared_task(name="credit.forget_leases")
def forget_closed_leases() -> None:
    """Delete leases that were closed weeks ago."""
    forget_leases(now=timezone.now())


@shared_task(name="credit.tell_paid")
def tell_what_was_paid() -> None:
    """Tell control what organizations have paid, where it knows otherwise."""
    tell_untold(now=timezone.now())

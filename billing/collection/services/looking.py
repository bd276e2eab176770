"""Looking at who has to be looked at.

A look is one transaction that locks the organization, its balance and its case, in this order. Of
two at once the second finds nothing left to do; one that is killed leaves nothing behind.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import structlog
from django.db import connection, transaction

from billing.collection import selectors
from billing.collection.models import Case
from billing.collection.services.look import Look
from billing.collection.services.steps import proceed
from billing.credit.services.budgets import BEAT_WAIT_MILLISECONDS, BusyError, waiting_at_most
from billing.credit.services.grants import hold_balance
from billing.invoicing.selectors import overdue
from control.organizations.selectors import locked_organization

AFTER_FAILURE = timedelta(minutes=10)
PAGE = 500
WAKE = """
/* Have an organization looked at by then, or earlier where that was so before. */
INSERT INTO collection_case (organization_id, state, round, invoice_id, due_cents, next_kind,
    pause_reason, waits_for, next_at)
VALUES (%s, 'current', 0, '', 0, '', '', '', %s)
ON CONFLICT (organization_id) DO UPDATE
SET next_at = least(collection_case.next_at, excluded.next_at)
"""

logger = structlog.get_logger(__name__)


def look(*, now: datetime, limit: int = PAGE) -> int:
    """Look at every organization whose time has come; return at how many.

    One that fails is left for ten minutes and holds nobody up.
    """
    ids = selectors.due_cases(now, limit)
    return sum(look_safely(organization_id, now=now) for organization_id in ids)


def look_safely(organization_id: str, *, now: datetime) -> bool:
    """Look at an organization; tell whether that came to its end."""
    try:
        with waiting_at_most(BEAT_WAIT_MILLISECONDS):
            look_at(organization_id, now=now)
    except BusyError:
        return False  # somebody holds its rows: the next run finds it
    except Exception:
        logger.exception("collection_failed", organization_id=organization_id)
        Case.objects.filter(organization_id=organization_id, next_at__lte=now).update(
            next_at=now + AFTER_FAILURE
        )
        return False
    return True


def look_at(organization_id: str, *, now: datetime) -> None:
    """Do what is due with an organization; nothing where nobody has to look yet."""
    with held(organization_id, now=now) as found:
        if found is not None and found.case.next_at and found.case.next_at <= now:
            proceed(found)


@contextmanager
def held(organization_id: str, *, now: datetime) -> Iterator[Look | None]:
    """Hold all that a look needs, for one transaction; None for who was never invoiced."""
    with transaction.atomic():
        organization = locked_organization(organization_id)
        hold_balance(organization_id, now=now)
        case = selectors.locked_case(organization_id)
        if case is None:
            yield None
            return
        owed = selectors.debt(organization_id, now)
        yield Look(case, organization, owed, selectors.settings(), now)


def wake(organization_id: str, *, now: datetime) -> None:
    """Have an organization looked at from `now` on."""
    with connection.cursor() as cursor:
        cursor.execute(WAKE, [organization_id, now])


def wake_missed(*, now: datetime) -> int:
    """Have everybody looked at who is overdue and whom nobody is going to look at: what was
    restored or invoiced in another way. Return how many."""
    late = {one.invoice.organization_id for one in overdue(now)}
    known = Case.objects.filter(organization_id__in=late, next_at__isnull=False)
    missed = late - set(known.values_list("organization_id", flat=True))
    for organization_id in sorted(missed):
        wake(organization_id, now=now)
    return len(missed)

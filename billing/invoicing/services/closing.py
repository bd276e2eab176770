"""Closing a month: an invoice for each organization that used anything, each in a transaction of
its own. Whoever runs it again, or beside another run, finds what is done and goes on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import structlog
from django.db import transaction

from billing.invoicing.amounts import Totals
from billing.invoicing.closes import earlier_uninvoiced, skipped_before, uninvoiced
from billing.invoicing.models import Close, CloseFailure, Invoice
from billing.invoicing.periods import Period
from billing.invoicing.services.finalizing import (
    invoice_organization,
    quote,
    require_closable,
)
from control.audit import services as audit
from control.errors import Conflict, ObjectNotFound, ServiceError
from control.organizations.selectors import organizations
from control.permissions import Actor, Permission, require_operator

REASON_MAX = 500
logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class Outcome:
    """What a run came to: invoices made, and why organizations have none yet."""

    invoices: list[Invoice] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    left_count: int = 0
    """Organizations that nobody got to."""

    @property
    def is_finished(self) -> bool:
        """Whether every organization that used anything has its invoice."""
        return not self.failures and not self.left_count


@dataclass(frozen=True, slots=True)
class Preview:
    """What a close would invoice an organization, or why it would not."""

    organization_id: str
    totals: Totals | None
    line_count: int
    problem: str = ""


def close_month(
    *,
    period: Period,
    actor: Actor,
    now: datetime,
    organization_id: str | None = None,
    progress: Callable[[int, int], None] = lambda done, all_: None,
    goes_on: Callable[[], bool] = lambda: True,
) -> Outcome:
    """Invoice a month for all who used anything, or for one; return what this run did.

    One that fails stops nobody else. `progress` is called with how many were looked at, of how
    many; `goes_on` is asked before each. Raises NotPermitted, ObjectNotFound for an unknown
    organization, Conflict while the month is not closable.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    due = due_organizations(period, organization_id, now=now)
    run = _Run(_begin(period, actor, now), period, actor, now)
    for done, owner in enumerate(due):
        if not goes_on():
            run.outcome.left_count = len(due) - done
            break
        run.invoice(owner)
        progress(done + 1, len(due))
    _end(run.close, period, now)
    return run.outcome


@transaction.atomic
def request_close(*, period: Period, actor: Actor, now: datetime) -> Close:
    """Let a worker close a month: it goes on with what was begun. Raises as `close_month`."""
    require_operator(actor, Permission.FINANCE_WRITE)
    due_organizations(period, now=now)
    close = _begin(period, actor, now)
    audit.record(
        actor=actor,
        action="month.close",
        target_kind="month",
        target_id=str(period),
        target_name=str(period),
    )
    return close


@dataclass(slots=True)
class _Run:
    """One run over a month."""

    close: Close
    period: Period
    actor: Actor
    now: datetime
    outcome: Outcome = field(default_factory=Outcome)

    def invoice(self, owner: str) -> None:
        """Invoice one organization, or note why not."""
        try:
            _require_order(owner, self.period)
            invoice = invoice_organization(
                organization_id=owner, period=self.period, actor=self.actor, now=self.now
            )
        except Exception as error:  # whatever it is: the others are invoiced all the same
            logger.exception("invoice_failed", organization_id=owner, period=str(self.period))
            self._fail(owner, _reason(error))
            return
        CloseFailure.objects.filter(close=self.close, organization_id=owner).delete()
        if invoice is not None:
            self.outcome.invoices.append(invoice)

    def _fail(self, owner: str, reason: str) -> None:
        self.outcome.failures[owner] = reason
        CloseFailure.objects.update_or_create(
            close=self.close,
            organization_id=owner,
            defaults={"reason": reason, "failed_at": self.now},
        )


def preview_month(
    *,
    period: Period,
    now: datetime,
    organization_id: str | None = None,
) -> Iterator[Preview]:
    """Tell what closing a month would invoice, and change nothing. Raises as `close_month`."""
    for owner in due_organizations(period, organization_id, now=now):
        yield preview(owner, period, now=now)


def preview(organization_id: str, period: Period, *, now: datetime) -> Preview:
    """Tell what an organization would be invoiced; what it takes to know is rolled back."""
    try:
        _require_order(organization_id, period)
        found = quote(organization_id, period, now=now, keep=False)
    except Exception as error:  # what a close would note as its failure
        return Preview(organization_id, None, 0, _reason(error))
    return Preview(organization_id, found.sums, len(found.draft.lines))


def due_organizations(
    period: Period, organization_id: str | None = None, *, now: datetime
) -> list[str]:
    """Return who is to be invoiced for a month. Raises ObjectNotFound and Conflict as
    `close_month`."""
    if organization_id and not organizations().filter(id=organization_id).exists():
        raise ObjectNotFound(f"There is no organization {organization_id}.", param="organization")
    require_closable(period, now=now)
    skipped = skipped_before(period)
    if skipped is not None:
        raise Conflict(f"Close {skipped} first: months are closed in order.")
    return uninvoiced(period, organization_id)


def _begin(period: Period, actor: Actor, now: datetime) -> Close:
    close, _ = Close.objects.get_or_create(
        starts_on=period.starts_on,
        defaults={"started_at": now, "run_at": now, "started_by": actor.name},
    )
    Close.objects.filter(pk=close.pk).update(run_at=now)
    return close


def _end(close: Close, period: Period, now: datetime) -> None:
    """Note that the close is finished, once nobody is left."""
    if not uninvoiced(period):
        Close.objects.filter(pk=close.pk, finished_at__isnull=True).update(finished_at=now)


def _require_order(organization_id: str, period: Period) -> None:
    earlier = earlier_uninvoiced(organization_id, period)
    if earlier is not None:
        raise Conflict(f"{earlier} has no invoice yet: months are closed in order.")


def _reason(error: Exception) -> str:
    """Return what to show of a failure: refusals speak for themselves."""
    words = error.message if isinstance(error, ServiceError) else f"{type(error).__name__}: {error}"
    return words.replace("\0", "")[:REASON_MAX]

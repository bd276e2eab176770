"""Questions about what is overdue. The organization comes first."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, TypedDict

from django.conf import settings as config
from django.db.models import Exists, OuterRef, Q, QuerySet, Sum

from billing.collection.models import Case, ScheduledStep, Settings, Step
from billing.invoicing import selectors as invoicing
from billing.invoicing.models import Invoice
from billing.invoicing.selectors import Standing
from billing.payments.models import Mode, PaymentStatus, StripePayment
from billing.payments.selectors import disputed_organizations
from control.errors import ObjectNotFound
from control.organizations.models import Membership, Organization

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

WAITING_AT_MOST = timedelta(hours=1)
"""How long a payment counts that waits for the customer, at Stripe's page or at their bank."""
MOVING = (PaymentStatus.CREATED, PaymentStatus.PROCESSING)
WAITING = (PaymentStatus.OPEN, PaymentStatus.REQUIRES_ACTION)


@dataclass(frozen=True, slots=True)
class Debt:
    """What an organization is to pay by now: its undisputed invoices, oldest first."""

    due: tuple[Standing, ...]
    is_disputed: bool
    next_due_on: date | None
    """When the next of its other open invoices is due."""

    @property
    def cents(self) -> int:
        """What is due in all."""
        return sum(one.open_cents for one in self.due)

    @property
    def oldest(self) -> Invoice:
        """The invoice from whose day steps are counted."""
        return self.due[0].invoice

    @property
    def numbers(self) -> list[str]:
        """The numbers of the invoices."""
        return [one.invoice.number for one in self.due]

    def is_met_by(self, cents: int) -> bool:
        """Tell whether so much money pays what steps are taken for: the oldest invoice, as every
        payment does. What pays a part of it stops nothing."""
        return bool(self.due) and cents >= self.due[0].open_cents


def debt(organization_id: str, now: datetime) -> Debt:
    """Return what an organization is to pay by now.

    While its bank asks a payment back nothing is: what that opened again is disputed too.
    """
    rows = invoicing.invoices(organization_id).filter(total_cents__gt=0)
    open_ones = [one for one in invoicing.standings(rows.order_by("due_on")) if not one.is_settled]
    today = now.date()
    due = [one for one in open_ones if one.invoice.due_on <= today]
    later = [one.invoice.due_on for one in open_ones if one.invoice.due_on > today]
    asked_back = bool(due) and bool(disputed_organizations([organization_id], _mode()))
    accepted = () if asked_back else tuple(one for one in due if not one.is_disputed)
    return Debt(accepted, len(accepted) < len(due), min(later, default=None))


def on_its_way_cents(organization_id: str, now: datetime, *, due_at: datetime | None = None) -> int:
    """Return what of an organization's money is on its way: asked for, or taken and not yet here.

    What waits for the customer counts for an hour, and if it was begun within an hour of `due_at`:
    a page opened every hour holds nothing up.
    """
    keys = config.CONFIG.stripe
    if keys is None:
        return 0  # nobody would ever learn what became of it
    begun_by = now if due_at is None else due_at + WAITING_AT_MOST
    waiting = Q(status__in=WAITING, created_at__lte=begun_by, created_at__gt=now - WAITING_AT_MOST)
    rows = StripePayment.objects.filter(organization_id=organization_id, mode=keys.mode)
    moving = rows.filter(Q(status__in=MOVING) | waiting)
    return int(moving.aggregate(cents=Sum("amount_cents"))["cents"] or 0)


def _mode() -> str:
    """Return whether money is real; without keys a dispute of real money still is."""
    keys = config.CONFIG.stripe
    return keys.mode if keys is not None else Mode.LIVE


def schedule() -> list[tuple[int, str]]:
    """Return the operator's schedule: days after due and the kind of step, in order."""
    return list(ScheduledStep.objects.order_by("days").values_list("days", "kind"))


def settings() -> Settings:
    """Return the operator's choices."""
    return Settings.objects.filter(id=1).first() or Settings(id=1)


def case(organization: Organization | str) -> Case | None:
    """Return how an organization stands."""
    organization_id = organization if isinstance(organization, str) else organization.pk
    return Case.objects.filter(organization_id=organization_id).first()


class Marks(TypedDict):
    """What `marked` adds to a seat."""

    is_overdue: bool
    is_suspended_for_payment: bool


def marked(
    seats: QuerySet[Membership],
) -> "QuerySet[WithAnnotations[Membership, Marks], WithAnnotations[Membership, Marks]]":
    """Return seats marked `is_overdue` where something of their organization is overdue, and
    `is_suspended_for_payment` where it is suspended until that is paid."""
    mine = Case.objects.filter(organization_id=OuterRef("organization_id"))
    return seats.annotate(
        is_overdue=Exists(mine.filter(opened_at__isnull=False)),
        is_suspended_for_payment=Exists(mine.filter(suspended_at__isnull=False)),
    )


def locked_case(organization_id: str) -> Case | None:
    """Return how an organization stands, locked until the transaction ends."""
    rows = Case.objects.select_for_update(no_key=True, of=("self",))
    return rows.filter(organization_id=organization_id).first()


def case_by_id(organization_id: str) -> Case:
    """Return how an organization stands, with it. Raises ObjectNotFound."""
    rows = Case.objects.select_related("organization")
    found = rows.filter(organization_id=organization_id).first()
    if found is None:
        raise ObjectNotFound("There is no such case.")
    return found


def due_cases(now: datetime, limit: int) -> list[str]:
    """Return the organizations that are to be looked at, the longest overdue look first."""
    rows = Case.objects.filter(next_at__lte=now).order_by("next_at", "organization_id")
    return list(rows.values_list("organization_id", flat=True)[:limit])


def steps(organization: Organization | str) -> QuerySet[Step]:
    """Return the steps taken with an organization, the newest first."""
    organization_id = organization if isinstance(organization, str) else organization.pk
    return Step.objects.filter(organization_id=organization_id).order_by("-taken_at", "-pk")

"""The notice of an overdue payment: what happened, what follows, and what to do."""

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.collection import selectors
from billing.collection.models import Case, State
from billing.collection.selectors import Debt
from billing.collection.services.telling import sentence
from billing.invoicing.printed import day, dollars
from control.organizations.services import why_suspended
from control.permissions import Permission
from web.console.base import PageContext

OPERATORS = _("The operator suspended this organization, so its API keys are refused.")
ASK = _("Ask an owner, admin or billing member to pay.")
WORDS = {
    State.LIMITED: _(
        "Your service is limited: until this is paid, your credit limit is suspended, and requests"
        " are served from prepaid credit only."
    ),
    State.SUSPENDED: _(
        "Your service is suspended: until this is paid, requests with your API keys are refused."
    ),
}
BACK = _("Everything works again as soon as the payment arrives.")


@dataclass(frozen=True, slots=True)
class PastDueNotice:
    """A notice on a page. `invoices` are numbers and URLs, only for members who may see money."""

    is_grave: bool
    title: str
    words: str
    invoices: tuple[tuple[str, str], ...] = ()
    pay_url: str = ""


def notice_of(page: PageContext, now: datetime) -> PastDueNotice | None:
    """Return an organization's notice; None if nothing is overdue."""
    case = selectors.case(page.organization) if page.is_overdue else None
    if case is None or not case.is_open:
        if page.organization.is_active:
            return None
        return PastDueNotice(True, gettext("Suspended"), happened(page, case))
    if not page.may(Permission.BILLING_READ):
        words = " ".join(filter(None, (happened(page, case), str(ASK))))
        return PastDueNotice(case.has_measures, title_of(case, ""), words)
    owed = selectors.debt(page.organization.id, now)
    if not owed.due:
        return None
    return PastDueNotice(
        is_grave=case.has_measures,
        title=title_of(case, dollars(owed.cents)),
        words=words_of(page, case),
        invoices=invoices_of(page, owed),
        pay_url=pay_url(page, owed) if page.may(Permission.BILLING_WRITE) else "",
    )


def pay_url(page: PageContext, owed: Debt) -> str:
    """Return the page to pay on: the oldest invoice's, or Billing without Stripe."""
    if settings.CONFIG.stripe is None:
        return page.url("billing")
    return page.url("invoice", owed.oldest.id)


def title_of(case: Case, due: str) -> str:
    """Return the notice's title."""
    if not due:
        return gettext("A payment is overdue") if case.has_measures else gettext("A payment is due")
    words = gettext("%(amount)s is overdue") if case.has_measures else gettext("%(amount)s is due")
    return words % {"amount": due}


def is_operators(page: PageContext) -> bool:
    """Return whether an operator suspended the organization, so that paying does not resume it."""
    return not page.organization.is_active and not page.is_suspended_for_payment


def happened(page: PageContext, case: Case | None) -> str:
    """Return a sentence on what is limited, or why the operator suspended it; empty if nothing
    is."""
    if is_operators(page):
        return f"{OPERATORS} {why_suspended(page.organization)}"
    return str(WORDS.get(State(case.state), "")) if case else ""


def words_of(page: PageContext, case: Case) -> str:
    """Return the notice's text: what happened and what follows."""
    limited = happened(page, case)
    is_back = limited and not is_operators(page)
    parts = (limited, next_step(case), str(BACK) if is_back else "")
    return " ".join(part for part in parts if part)


def next_step(case: Case) -> str:
    """Return a sentence on the next step and its date; empty if there is none."""
    if case.waits_for == "payment":
        return gettext("A payment is on its way. Nothing further happens until its result is in.")
    if case.waits_for == "pause":
        if not case.paused_until:
            return gettext("Nothing further happens for now.")
        words = gettext("Nothing further happens until %(day)s.")
        return words % {"day": day(case.paused_until)}
    if case.next_on is None:
        return ""
    return sentence(case.next_kind, case.next_on)


def invoices_of(page: PageContext, owed: Debt) -> tuple[tuple[str, str], ...]:
    """Return the numbers and URLs of the overdue invoices."""
    return tuple((one.invoice.number, page.url("invoice", one.invoice.id)) for one in owed.due)

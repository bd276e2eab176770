"""What customers are told of each step, in the transaction that takes it: what is due, for which
invoices, what follows and when. Webhooks of payments and invoices are told by their own rooms."""

from datetime import date

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.collection.models import StepKind
from billing.collection.services.look import Look
from billing.invoicing.announcing import recipients
from billing.invoicing.printed import day, dollars
from billing.invoicing.selectors import Standing
from billing.payments.models import StripePayment
from control.mail.services import absolute, send_mail

FOLLOWS = {
    StepKind.RETRY: _("We will try again on {day}."),
    StepKind.LIMIT: _(
        "On {day}, the service will be limited: the credit limit will be suspended, and requests"
        " will be served from prepaid credit only."
    ),
    StepKind.SUSPEND: _("On {day}, the service will be suspended: all requests will be refused."),
}
"""What the next step is, by its kind."""
REMINDED = _("We will remind you again on {day}.")


def reminded(look: Look, name: str) -> None:
    """Remind of what is due."""
    _mail(look, "reminder", name, follows=follows(look, is_charged=False))


def limited(look: Look, name: str) -> None:
    """Tell that the service is limited."""
    _mail(look, "service_limited", name)


def suspended(look: Look, name: str) -> None:
    """Tell that the service is suspended."""
    _mail(look, "service_suspended", name)


def reinstated(look: Look, name: str) -> None:
    """Tell that the service is as it was."""
    _mail(look, "service_reinstated", name)


def payment_failed(look: Look, payment: StripePayment) -> None:
    """Tell that an invoice could not be charged."""
    _mail(
        look,
        "payment_failed",
        f"failed:{payment.id}",
        failed=dollars(payment.total_cents),
        method=str(payment.method or gettext("the saved payment method")),
        why=payment.failure_words,
    )


def follows(look: Look, *, is_charged: bool = True) -> str:
    """Return what follows and when, in a sentence; nothing after the last step."""
    kind, on = look.case.next_kind, look.case.next_on
    return sentence(kind, on, is_charged=is_charged) if on else ""


def sentence(kind: str, on: date, *, is_charged: bool = True) -> str:
    """Return the sentence that announces a step."""
    is_reminder = kind == StepKind.RETRY and not is_charged
    words = REMINDED if is_reminder else FOLLOWS[StepKind(kind)]
    return words.format(day=day(on))


def _mail(look: Look, template: str, name: str, **more: str) -> None:
    owner = look.case.organization_id
    send_mail(
        template=template,
        to=recipients(owner),
        context={
            "organization": look.organization.name,
            "due": dollars(look.owed.cents),
            "invoices": [_line(one) for one in look.owed.due],
            "number": look.owed.oldest.number if look.owed.due else "",
            "follows": follows(look),
            "url": absolute(f"/{owner}/billing"),
            **more,
        },
        key=f"collection:{owner}:{look.case.round}:{name}",
        organization_id=owner,
        now=look.now,
    )


def _line(one: Standing) -> dict[str, str]:
    invoice = one.invoice
    return {
        "number": invoice.number,
        "left": dollars(one.open_cents),
        "due_on": day(invoice.due_on),
        "url": absolute(f"/{invoice.organization_id}/invoices/{invoice.id}"),
    }

"""Confirmation of an amount that stops work: the form comes back and says what stops."""

from datetime import datetime

from django import forms
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.alerts.selectors import spent_nanos
from control.organizations.models import Organization
from serving.contract.budget import period_end, period_start
from serving.contract.money import exact_dollars
from web.console.formatting import moment

CONFIRMED = "confirmed_nanos"


def is_confirmed(form: forms.Form, nanos: int, consequence: str) -> bool:
    """Return whether the person confirmed this amount. Otherwise add the consequence and a checkbox
    to the form. Another amount needs another confirmation."""
    if not consequence or form.data.get(CONFIRMED) == str(nanos):
        return True
    widget = forms.CheckboxInput(attrs={"value": nanos}, check_test=lambda _value: False)
    form.fields[CONFIRMED] = forms.Field(
        label=_("Set this limit anyway"), required=False, widget=widget
    )
    form.add_error(None, consequence)
    return False


def zero_limit_words(name: str) -> str:
    """Return what a hard limit of nothing stops."""
    words = gettext("With a limit of $0.00, every request of %(name)s is refused.")
    return words % {"name": name}


def limit_consequence(
    organization: Organization, budget_id: str, name: str, limit_nanos: int, now: datetime
) -> str:
    """Return what a hard limit of `name` stops as soon as it is set; empty if it stops nothing."""
    if limit_nanos == 0:
        return zero_limit_words(name)
    spent = spent_nanos(organization, budget_id, now)
    if spent < limit_nanos:
        return ""
    starts_at = period_start(budget_id, now)
    words = gettext(
        "%(name)s has spent %(spent)s since %(start)s. With a limit of %(limit)s, its requests are"
        " refused until %(end)s."
    )
    return words % {
        "name": name,
        "spent": exact_dollars(spent),
        "limit": exact_dollars(limit_nanos),
        "start": moment(starts_at),
        "end": moment(period_end(budget_id, starts_at) or starts_at),
    }

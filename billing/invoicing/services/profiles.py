"""Whom an organization's invoices are for, as its people or the operator say it."""

import unicodedata
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from billing.invoicing.countries import COUNTRIES
from billing.invoicing.models import BillingProfile, ExchangeRate, LegalEntity, Paper
from billing.invoicing.models.parties import TERMS_DAYS_MAX, TEXT_MAX
from billing.invoicing.printable import require_printable_profile
from billing.invoicing.selectors import billing_profile
from billing.invoicing.tax_ids import checked_tax_id
from control.accounts.models import EMAIL_MAX
from control.audit import services as audit
from control.db.row_changes import differences
from control.errors import InvalidValue, NotPermitted
from control.organizations.models import Organization
from control.permissions import Actor, Permission, require

RECIPIENTS_MAX = 20
TEXTS = {
    "legal_name": TEXT_MAX,
    "line1": TEXT_MAX,
    "line2": TEXT_MAX,
    "postal_code": 20,
    "city": TEXT_MAX,
    "region": TEXT_MAX,
    "purchase_order": TEXT_MAX,
}
OF_THE_OPERATOR = ("terms_days", "legal_entity")
"""What a customer may not choose."""


@transaction.atomic
def set_billing_profile(
    *, organization: Organization, actor: Actor, changes: Mapping[str, Any]
) -> BillingProfile:
    """Change fields of a billing profile; later documents carry them, final ones stay.

    Raises ObjectNotFound, NotPermitted (terms and legal entity are the operator's to set),
    InvalidValue naming the field, also for characters that cannot be printed.
    """
    require(actor, organization.id, Permission.BILLING_WRITE)
    for name in OF_THE_OPERATOR:
        if name in changes and not actor.can_operate(Permission.FINANCE_WRITE):
            raise NotPermitted(f"{name} is set by the operator.", param=name)
    BillingProfile.objects.get_or_create(organization=organization)
    BillingProfile.objects.select_for_update().get(organization=organization)
    profile = billing_profile(organization)
    checked = _checked(profile, dict(changes))
    before = {name: getattr(profile, name) for name in checked}
    for name, value in checked.items():
        setattr(profile, name, value)
    require_printable_profile(profile)
    profile.save()
    changed = {name: value for name, value in checked.items() if value != before[name]}
    audit.record(
        actor=actor,
        action="billing_profile.set",
        target_kind="organization",
        target_id=organization.pk,
        target_name=organization.name,
        organization_id=organization.pk,
        details=differences(before, changed),
    )
    return profile


def plain_text(value: Any, most: int, param: str) -> str:
    """Return a text without what surrounds it. Raises InvalidValue for one too long, or with
    characters that are none on paper."""
    if not isinstance(value, str):
        raise InvalidValue(f"{param} is {value!r:.40}; wanted a text.", param=param)
    if len(value) > most:
        message = f"{param} has {len(value)} characters; wanted {most} at most."
        raise InvalidValue(message, param=param)
    if any(unicodedata.category(one) in {"Cc", "Cs"} for one in value):
        raise InvalidValue(f"{param} has a character that cannot be printed.", param=param)
    return value.strip()


def country_code(value: Any, param: str = "country") -> str:
    """Return a country's code in capitals, empty for none. Raises InvalidValue."""
    code = plain_text(value, 2, param).upper()
    if code and code not in COUNTRIES:
        raise InvalidValue(f"{code!r} is not a country; enter two letters such as DE.", param=param)
    return code


def _checked(profile: BillingProfile, changes: dict[str, Any]) -> dict[str, Any]:
    checks: dict[str, Callable[[Any], Any]] = {
        **{name: partial(plain_text, most=most, param=name) for name, most in TEXTS.items()},
        "country": country_code,
        "tax_id": lambda value: plain_text(value, 40, "tax_id"),
        "currency": _currency,
        "recipients": _recipients,
        "terms_days": _terms,
        "paper": _paper,
        "legal_entity": _legal_entity,
    }
    for name in changes:
        if name not in checks:
            raise InvalidValue(f"{name} cannot be set.", param=name)
    found = {name: checks[name](value) for name, value in changes.items()}
    if {"country", "tax_id"} & found.keys():
        country = found.get("country", profile.country)
        found["tax_id"] = checked_tax_id(found.get("tax_id", profile.tax_id), country)
    return found


def _currency(value: Any) -> str:
    code = plain_text(value, 3, "currency").upper()
    if code != "USD" and not ExchangeRate.objects.filter(currency=code).exists():
        raise InvalidValue(f"Invoices cannot show amounts in {code!r}.", param="currency")
    return code


def _recipients(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or len(value) > RECIPIENTS_MAX:
        wanted = f"a list of at most {RECIPIENTS_MAX} addresses"
        raise InvalidValue(f"recipients is {value!r:.40}; wanted {wanted}.", param="recipients")
    found = [plain_text(one, EMAIL_MAX, "recipients") for one in value]
    for address in found:
        try:
            validate_email(address)
        except ValidationError as error:
            raise InvalidValue(
                f"{address!r} is not an email address.", param="recipients"
            ) from error
    return list(dict.fromkeys(found))


def _terms(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= TERMS_DAYS_MAX:
        message = f"terms_days is {value!r:.40}; wanted 0 to {TERMS_DAYS_MAX}."
        raise InvalidValue(message, param="terms_days")
    return value


def _paper(value: Any) -> str:
    if value not in Paper.values:
        wanted = ", ".join(Paper.values)
        raise InvalidValue(f"paper is {value!r:.40}; wanted one of {wanted}.", param="paper")
    return str(value)


def _legal_entity(value: Any) -> LegalEntity | None:
    if value is not None and not isinstance(value, LegalEntity):
        raise InvalidValue("There is no such legal entity.", param="legal_entity")
    return value

"""What the operator sets up: who sells, what tax is added, which currencies amounts are told in."""

from collections.abc import Mapping
from datetime import date
from typing import Any

from django.db import transaction

from billing.invoicing.models import ExchangeRate, LegalEntity, TaxRate
from billing.invoicing.models.parties import RATE_MAX, TEXT_MAX
from billing.invoicing.printable import require_printable, require_printable_entity
from billing.invoicing.services.profiles import country_code, plain_text
from billing.invoicing.tax import calculator
from billing.invoicing.typeset.pdf import is_picture
from control.audit import services as audit
from control.db.row_changes import snapshot
from control.errors import Conflict, InvalidValue
from control.permissions import Actor, Permission, require_operator

CURRENCY_LETTERS = 3


@transaction.atomic
def save_legal_entity(
    *, actor: Actor, values: Mapping[str, Any], entity: LegalEntity | None = None
) -> LegalEntity:
    """Add a legal entity, or change one; its numbers go on as they are.

    Raises NotPermitted, InvalidValue, Conflict for prefixes of documents that were given out.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    values = dict(values)
    row = LegalEntity.objects.select_for_update().get(pk=entity.pk) if entity else LegalEntity()
    _check_entity(row, values)
    if values.get("is_default"):
        LegalEntity.objects.exclude(pk=row.pk).update(is_default=False)
    elif row.is_default and "is_default" in values:
        raise Conflict("Make another legal entity the default instead.", param="is_default")
    told = [name for name in values if name != "logo_svg"]
    before = snapshot(row, told) if entity else None
    for name, value in values.items():
        setattr(row, name, value)
    row.save()
    _record(
        actor, "legal_entity.save", "legal_entity", row.pk, row.name,
        before=before, after=snapshot(row, told),
    )  # fmt: skip
    return row


@transaction.atomic
def save_tax_rate(
    *, actor: Actor, values: Mapping[str, Any], rate: TaxRate | None = None
) -> TaxRate:
    """Add a tax rate, or change one; final invoices keep theirs. Raises NotPermitted,
    InvalidValue."""
    require_operator(actor, Permission.FINANCE_WRITE)
    row = TaxRate.objects.select_for_update().get(pk=rate.pk) if rate else TaxRate()
    before = snapshot(row, values) if rate else None
    for name, value in values.items():
        setattr(row, name, value)
    row.country = country_code(row.country)
    if not row.country:
        raise InvalidValue("country is empty; wanted two letters such as DE.", param="country")
    if not 0 <= row.rate_basis_points <= RATE_MAX:
        message = f"rate_basis_points is {row.rate_basis_points}; wanted 0 to {RATE_MAX}."
        raise InvalidValue(message, param="rate_basis_points")
    row.region = plain_text(row.region, TEXT_MAX, "region")
    require_printable({"name": row.name})
    others = TaxRate.objects.filter(
        country=row.country, region__iexact=row.region, starts_on=row.starts_on
    )
    if others.exclude(pk=row.pk).exists():
        raise Conflict("A rate for that country, region and day already exists.")
    row.save()
    _record(
        actor, "tax_rate.save", "tax_rate", str(row.pk), str(row),
        before=before, after=snapshot(row, values),
    )  # fmt: skip
    return row


@transaction.atomic
def set_exchange_rate(*, actor: Actor, currency: str, micros: int, as_of: date) -> ExchangeRate:
    """Tell what a dollar is worth in a currency (millionths). Raises NotPermitted, InvalidValue."""
    require_operator(actor, Permission.FINANCE_WRITE)
    code = plain_text(currency, CURRENCY_LETTERS, "currency").upper()
    if len(code) != CURRENCY_LETTERS or not code.isascii() or not code.isalpha() or code == "USD":
        message = f"currency is {code!r}; wanted three letters, and not USD."
        raise InvalidValue(message, param="currency")
    if micros <= 0:
        raise InvalidValue(f"micros is {micros}; wanted more than 0.", param="micros")
    known, told = ExchangeRate.objects.filter(currency=code).first(), ("micros", "as_of")
    before = snapshot(known, told) if known else None
    row, _ = ExchangeRate.objects.update_or_create(
        currency=code, defaults={"micros": micros, "as_of": as_of}
    )
    _record(
        actor, "exchange_rate.set", "exchange_rate", code, code,
        before=before, after=snapshot(row, told),
    )  # fmt: skip
    return row


def _check_entity(row: LegalEntity, values: dict[str, Any]) -> None:
    require_printable_entity(values)
    if "country" in values:
        values["country"] = country_code(values["country"])
    if values.get("logo_svg") and not is_picture(values["logo_svg"]):
        raise InvalidValue("The logo is not an SVG that can be printed.", param="logo_svg")
    if "tax_calculator" in values:
        calculator(values["tax_calculator"])
    prefixes = {"number_prefix": row.next_invoice, "credit_note_prefix": row.next_credit_note}
    for name, following in prefixes.items():
        if values.get(name, getattr(row, name)) != getattr(row, name) and following > 1:
            raise Conflict("Documents with this prefix were already issued.", param=name)


def _record(
    actor: Actor, action: str, kind: str, target_id: str, target_name: str, **details: Any
) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind=kind,
        target_id=target_id,
        target_name=target_name,
        details=details,
    )

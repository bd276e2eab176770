"""Seller and buyer as documents show them and as tax calculators need them."""

from typing import Any

from billing.invoicing.countries import country_name
from billing.invoicing.models import BillingProfile, ExchangeRate, LegalEntity
from billing.invoicing.tax import Party


def seller_party(entity: LegalEntity) -> Party:
    """Return where a legal entity sells from."""
    return Party(country=entity.country, region=entity.region)


def buyer_party(profile: BillingProfile) -> Party:
    """Return where a customer buys."""
    return Party(
        country=profile.country, region=profile.region, postal_code=profile.postal_code,
        city=profile.city, line1=profile.line1, tax_id=profile.tax_id,
    )  # fmt: skip


def seller_printed(entity: LegalEntity) -> dict[str, Any]:
    """Return what a document shows of its seller."""
    return {
        "name": entity.name,
        "address": [*_lines(entity.address), country_name(entity.country)],
        "tax_ids": _lines(entity.tax_ids),
        "email": entity.email,
        "bank_details": _lines(entity.bank_details),
        "footer": _lines(entity.footer),
        "logo_svg": entity.logo_svg,
    }


def buyer_printed(profile: BillingProfile) -> dict[str, Any]:
    """Return what a document shows of its buyer, and in which currency it is told beside."""
    rate = ExchangeRate.objects.filter(currency=profile.currency).first()
    country = [country_name(profile.country)] if profile.country else []
    return {
        "name": profile.name,
        "address": [*profile.address, *country],
        "country": profile.country,
        "tax_id": profile.tax_id,
        "currency": rate.currency if rate else "",
        "currency_micros": rate.micros if rate else 0,
        "currency_as_of": rate.as_of.isoformat() if rate else "",
    }


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]

"""What tax a sale carries. A calculator is asked outside of any transaction: it may be a service.

The operator's own table of rates is the first; `register` adds others, which a legal entity names.
"""

from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Protocol

from django.db.models import Q

from billing.invoicing.amounts import tax_on
from billing.invoicing.countries import EUROPEAN_UNION
from billing.invoicing.models import TaxRate
from control.errors import InvalidValue

EU_NOTE = "Reverse charge: VAT is due by the recipient (Article 196 of Directive 2006/112/EC)."
NOTE = "Reverse charge: the tax is to be accounted for by the recipient."


@dataclass(frozen=True, slots=True)
class Party:
    """Where a seller or a buyer is, and the tax id they gave."""

    country: str
    region: str = ""
    postal_code: str = ""
    city: str = ""
    line1: str = ""
    tax_id: str = ""


@dataclass(frozen=True, slots=True)
class Sale:
    """What is taxed: an amount in cents before tax, on a day."""

    organization_id: str
    seller: Party
    buyer: Party
    net_cents: int
    on: date
    currency: str = "USD"


@dataclass(frozen=True, slots=True)
class Tax:
    """What a sale carries, and what the document says of it."""

    cents: int = 0
    name: str = ""
    rate_basis_points: int = 0
    is_reverse_charge: bool = False
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as documents keep it."""
        return asdict(self)


class TaxCalculator(Protocol):
    """Whoever knows the tax on a sale. Raises what it likes: nothing is invoiced then."""

    def tax(self, sale: Sale) -> Tax: ...


class RateTable:
    """The operator's table: the rate of the buyer's region, else of its country, else none."""

    def tax(self, sale: Sale) -> Tax:
        """Return the tax by the rate in force on the day of the sale."""
        rate = rate_of(sale.buyer.country, sale.buyer.region, sale.on)
        if rate is None:
            return Tax()
        abroad = sale.buyer.country != sale.seller.country
        if rate.reverse_charge and abroad and sale.buyer.tax_id:
            both = {sale.buyer.country, sale.seller.country} <= EUROPEAN_UNION
            return Tax(name=rate.name, is_reverse_charge=True, note=EU_NOTE if both else NOTE)
        cents = tax_on(sale.net_cents, rate.rate_basis_points)
        return Tax(cents, rate.name, rate.rate_basis_points)


def rate_of(country: str, region: str, on: date) -> TaxRate | None:
    """Return the rate of a region, else of all its country, in force on a day."""
    if not country:
        return None
    wanted = Q(region="") | Q(region__iexact=region.strip())
    rates = TaxRate.objects.filter(wanted, country=country, starts_on__lte=on)
    return max(rates, key=lambda rate: (bool(rate.region), rate.starts_on), default=None)


_calculators: dict[str, TaxCalculator] = {"rate_table": RateTable()}


def register(name: str, calculator: TaxCalculator) -> None:
    """Let legal entities name a calculator."""
    _calculators[name] = calculator


def calculator(name: str) -> TaxCalculator:
    """Return a calculator by its name. Raises InvalidValue where nobody registered it."""
    try:
        return _calculators[name]
    except KeyError as error:
        message = f"tax_calculator is {name!r}; wanted one of {', '.join(sorted(_calculators))}."
        raise InvalidValue(message, param="tax_calculator") from error

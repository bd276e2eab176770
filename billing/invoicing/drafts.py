"""An invoice before it is one: the lines of an organization's month and what they come to."""

from collections.abc import Sequence
from dataclasses import dataclass

from billing.invoicing import usage
from billing.invoicing.amounts import Totals, net_cents, totals
from billing.invoicing.models import BillingProfile, LegalEntity
from billing.invoicing.models.documents import InvoiceLine, Meter
from billing.invoicing.parties import buyer_party, seller_party
from billing.invoicing.periods import Period
from billing.invoicing.tax import Sale, Tax, calculator
from billing.invoicing.usage import Posted, Sold, Used, Ware
from control.catalog.models import Variant
from control.pricing.models import Price
from serving.contract.money import cents

ORDER = {meter: place for place, meter in enumerate(usage.METERS)}
NO_PRICE = 0


class DisagreementError(Exception):
    """The lines of a closed month are not what the ledger charged: nothing is invoiced."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What an organization's month comes to, to the nano."""

    organization_id: str
    period: Period
    lines: list[InvoiceLine]
    owed_nanos: int
    days: list[list[int]]

    @property
    def usage_nanos(self) -> int:
        """The exact sum of the lines."""
        return sum(line.amount_nanos for line in self.lines)

    @property
    def net_cents(self) -> int:
        """What is taxed."""
        return net_cents(self._nanos, self.owed_nanos)

    def totals(self, tax_cents: int) -> Totals:
        """Return what it comes to with a tax."""
        return totals(self._nanos, self.owed_nanos, tax_cents=tax_cents)

    @property
    def _nanos(self) -> list[int]:
        return [line.amount_nanos for line in self.lines]


def draft(organization_id: str, period: Period) -> Draft:
    """Return the draft of a closed month whose usage is posted.

    Raises DisagreementError where the rollups and the ledger say different things.
    """
    ledger = usage.posted(organization_id, period)
    found = _agreed(organization_id, period, ledger)
    return Draft(organization_id, period, lines_of(found.sold), ledger.owed_nanos, found.days)


def lines_of(found: Sequence[Sold]) -> list[InvoiceLine]:
    """Return a line per ware and meter that costs something, late usage last."""
    names = _Names({one.ware for one in found})
    lines = [
        _line(one, meter, names)
        for one in found
        for meter in usage.METERS
        if one.nanos[ORDER[meter]]
    ]
    lines.sort(
        key=lambda line: (
            -line.received_on.toordinal(), line.variant_name, line.tier, line.input_tokens_min,
            line.price_id, ORDER[line.meter],
        )
    )  # fmt: skip
    for position, line in enumerate(lines, 1):
        line.position = position
    return lines


def tax_of(
    profile: BillingProfile, entity: LegalEntity, period: Period, net: int, *, currency: str = "USD"
) -> Tax:
    """Ask the legal entity's calculator for the tax on an amount of cents; none on nothing."""
    if net == 0:
        return Tax()
    sale = Sale(
        profile.organization_id, seller_party(entity), buyer_party(profile), net,
        period.last_day, currency,
    )  # fmt: skip
    return calculator(entity.tax_calculator).tax(sale)


def _agreed(organization_id: str, period: Period, ledger: Posted) -> Used:
    """Return what was used, which is what the ledger has."""
    found = usage.used(organization_id, period)
    if found.nanos == ledger.charged_nanos:
        return found
    raise DisagreementError(
        f"{period}: usage comes to {found.nanos} nanos, the ledger charged {ledger.charged_nanos}"
    )


class _Names:
    """Prices and variants by the ids that usage names them by; one question answers both."""

    def __init__(self, wares: set[Ware]) -> None:
        rows = Price.objects.select_related("variant__model")
        self.prices = rows.in_bulk({ware.price_id for ware in wares})
        self.variants = {price.variant_id: price.variant for price in self.prices.values()}
        missing = {ware.variant_id for ware in wares} - self.variants.keys()
        if missing:
            self.variants |= Variant.objects.select_related("model").in_bulk(missing)

    def of(self, ware: Ware) -> tuple[str, str]:
        """Return what a model and a variant are called; their ids where nobody knows them."""
        variant = self.variants.get(ware.variant_id)
        return (variant.model.name, str(variant)) if variant else (ware.model_id, ware.variant_id)


def _line(one: Sold, meter: str, names: _Names) -> InvoiceLine:
    place, price = ORDER[meter], names.prices.get(one.ware.price_id)
    model_name, variant_name = names.of(one.ware)
    return InvoiceLine(
        model_id=one.ware.model_id,
        model_name=model_name,
        variant_id=one.ware.variant_id,
        variant_name=variant_name,
        tier=one.ware.tier,
        price_id=one.ware.price_id,
        input_tokens_min=price.input_tokens_min if price else 0,
        meter=Meter(meter),
        received_on=one.ware.received_on,
        quantity_tokens=one.tokens[place],
        unit_price_nanos=getattr(price, f"{meter}_nanos") if price else NO_PRICE,
        amount_nanos=one.nanos[place],
        amount_cents=cents(one.nanos[place]),
    )

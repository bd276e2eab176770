"""The arithmetic of an invoice, pure: lines, their rounding, credit, tax and total.

Nanos are exact, cents are what a customer pays. Only here do nanos become cents.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.contract.money import CENT_NANOS, cents

BASIS_POINTS = 10_000
"""A whole in basis points: a rate of 19 % is 1,900 of them."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What an invoice comes to; its posting makes the receivable equal its total.

    `subtotal_cents - credit_applied_cents = net_cents`, and `net_cents + tax_cents = total_cents`.
    """

    usage_nanos: int
    owed_nanos: int
    subtotal_cents: int
    credit_applied_cents: int
    tax_cents: int

    @property
    def net_cents(self) -> int:
        """What the period leaves to pay, before tax."""
        return self.subtotal_cents - self.credit_applied_cents

    @property
    def total_cents(self) -> int:
        """What the period leaves to pay."""
        return self.net_cents + self.tax_cents

    @property
    def total_nanos(self) -> int:
        """The total as the books count."""
        return self.total_cents * CENT_NANOS

    @property
    def rounding_nanos(self) -> int:
        """What rounding adds to the receivable (positive) or takes from it."""
        return self.net_cents * CENT_NANOS - self.owed_nanos

    @property
    def tax_nanos(self) -> int:
        """The tax as the books count."""
        return self.tax_cents * CENT_NANOS


def net_cents(lines_nanos: Sequence[int], owed_nanos: int) -> int:
    """Return what a period leaves to pay before tax: its lines, each rounded once half up, less
    what credit covered of them, rounded once; never below 0.

    `owed_nanos` is what no credit covered of the lines' sum. Worked examples: lines of 1.2345 and
    2.3456 dollars with nothing covered leave 1.23 + 2.35 = 3.58; with 2.00 covered 1.58; with all
    covered 0, whatever rounding made of the lines.
    """
    subtotal = sum(cents(nanos) for nanos in lines_nanos)
    return subtotal - _credit_cents(subtotal, sum(lines_nanos), owed_nanos)


def totals(lines_nanos: Sequence[int], owed_nanos: int, *, tax_cents: int) -> Totals:
    """Return what an invoice of these lines comes to. Raises ValueError for senseless amounts."""
    usage_nanos = sum(lines_nanos)
    if min(lines_nanos, default=0) < 0 or not 0 <= owed_nanos <= usage_nanos or tax_cents < 0:
        raise ValueError(f"{owed_nanos} nanos owed of {usage_nanos}, {tax_cents} cents of tax")
    subtotal = sum(cents(nanos) for nanos in lines_nanos)
    credit = _credit_cents(subtotal, usage_nanos, owed_nanos)
    return Totals(usage_nanos, owed_nanos, subtotal, credit, tax_cents)


def tax_on(net: int, rate_basis_points: int) -> int:
    """Return the tax on an amount of cents, rounded once, half up: 19 % of 3.58 are 0.68."""
    return (net * rate_basis_points + BASIS_POINTS // 2) // BASIS_POINTS


def share_of(part: int, whole: int, amount: int) -> int:
    """Return the share of an amount that belongs to a part of a whole, half up; 0 of nothing.

    Shares of growing parts grow to the whole amount: each correction takes the difference.
    """
    return (amount * part + whole // 2) // whole if whole else 0


def _credit_cents(subtotal_cents: int, usage_nanos: int, owed_nanos: int) -> int:
    if owed_nanos == 0:
        return subtotal_cents
    return min(subtotal_cents, cents(usage_nanos - owed_nanos))

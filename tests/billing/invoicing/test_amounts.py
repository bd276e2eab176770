"""The arithmetic of invoices: lines, credit, tax and total always add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.invoicing.amounts import BASIS_POINTS, net_cents, share_of, tax_on, totals
from serving.contract.money import CENT_NANOS, cents

pytestmark = pytest.mark.unit
NANOS = st.integers(1, 10**15)
LINES = st.lists(NANOS, max_size=40)
RATES = st.integers(0, BASIS_POINTS)
SHARES = st.fractions(0, 1)


@given(LINES, SHARES, RATES)
def test_lines_credit_and_tax_add_up_to_the_total(lines, share, rate):
    owed = int(sum(lines) * share)
    net = net_cents(lines, owed)
    sums = totals(lines, owed, tax_cents=tax_on(net, rate))
    assert sums.net_cents == net
    assert sums.subtotal_cents == sum(cents(nanos) for nanos in lines)
    assert sums.subtotal_cents - sums.credit_applied_cents + sums.tax_cents == sums.total_cents
    assert min(sums.credit_applied_cents, sums.net_cents, sums.tax_cents, sums.total_cents) >= 0


@given(LINES, SHARES, RATES)
def test_the_postings_make_the_receivable_the_total_to_the_nano(lines, share, rate):
    owed = int(sum(lines) * share)
    sums = totals(lines, owed, tax_cents=tax_on(net_cents(lines, owed), rate))
    assert owed + sums.rounding_nanos + sums.tax_nanos == sums.total_cents * CENT_NANOS


@given(LINES, SHARES)
def test_rounding_is_half_a_cent_a_line_and_half_a_cent_of_credit_at_most(lines, share):
    owed = int(sum(lines) * share)
    sums = totals(lines, owed, tax_cents=0)
    if owed:
        assert abs(sums.rounding_nanos) <= (len(lines) + 1) * CENT_NANOS // 2
    else:
        assert sums.rounding_nanos == 0


@given(LINES)
def test_who_has_paid_before_owes_nothing_whatever_rounding_made(lines):
    sums = totals(lines, 0, tax_cents=0)
    assert (sums.total_cents, sums.credit_applied_cents) == (0, sums.subtotal_cents)


@given(LINES)
def test_without_credit_the_lines_are_what_is_due(lines):
    assert net_cents(lines, sum(lines)) == sum(cents(nanos) for nanos in lines)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8), st.integers(0, 10**6))
def test_the_shares_of_growing_parts_grow_to_the_whole(parts, amount):
    whole, before, given_back = sum(parts), 0, 0
    for part in parts:
        share = share_of(before + part, whole, amount) - share_of(before, whole, amount)
        assert share >= 0
        before, given_back = before + part, given_back + share
    assert given_back == amount


@pytest.mark.parametrize(
    ("lines", "owed", "rate", "wanted"),
    [
        # 1.23 + 2.35; 19 % of 3.58 is 0.6802
        ((1_234_500_000, 2_345_600_000), 3_580_100_000, 1900, (358, 0, 68, 426)),
        # 2.00 of it drawn from credit: 1.58; 19 % is 0.3002
        ((1_234_500_000, 2_345_600_000), 1_580_100_000, 1900, (358, 200, 30, 188)),
        ((1_234_500_000, 2_345_600_000), 0, 1900, (358, 358, 0, 0)),
        ((4_999_999,), 4_999_999, 1900, (0, 0, 0, 0)),  # under half a cent
        ((5_000_000,), 5_000_000, 0, (1, 0, 0, 1)),  # half a cent
        ((), 0, 1900, (0, 0, 0, 0)),
    ],
)
def test_worked_examples(lines, owed, rate, wanted):
    """`wanted` is subtotal, credit applied, tax and total, in cents."""
    sums = totals(lines, owed, tax_cents=tax_on(net_cents(lines, owed), rate))
    found = (sums.subtotal_cents, sums.credit_applied_cents, sums.tax_cents, sums.total_cents)
    assert found == wanted


@pytest.mark.parametrize(
    ("lines", "owed", "tax"), [((-1,), 0, 0), ((5,), 6, 0), ((5,), -1, 0), ((5,), 5, -1)]
)
def test_senseless_amounts_are_refused(lines, owed, tax):
    with pytest.raises(ValueError, match="owed of"):
        totals(lines, owed, tax_cents=tax)

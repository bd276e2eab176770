"""What a customer has paid moves its limit tier: a payment at once, a refund within the hour."""

import pytest
from django.utils import timezone

from billing.credit.services.adjustments import refund
from billing.credit.services.payments import record_payment
from billing.credit.standing import tell_untold
from control.feed.selectors import last_record, last_version
from control.feed.services import FeedRef, publish
from control.limits.models import OrganizationUsageTier
from control.limits.rate_limits import create_usage_tier
from control.outbox.services import deliver_due
from control.permissions import Actor
from serving.contract.codec import decode
from serving.contract.records import OrganizationRecord
from tests.fixtures.usage import NOW, Customer

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
OPERATOR = Actor.for_system("tests")


def pay(customer: Customer, nanos: int, tax_nanos: int = 0, key: str = "1") -> None:
    record_payment(
        organization_id=customer.id, amount_nanos=nanos, tax_nanos=tax_nanos, idempotency_key=key,
        actor=OPERATOR, reason="test", now=NOW,
    )  # fmt: skip
    deliver_due(now=NOW)


def standing(customer: Customer) -> tuple[int, str | None]:
    found = OrganizationUsageTier.objects.select_related("tier").get(organization_id=customer.id)
    return found.paid_nanos, found.tier and found.tier.name


@pytest.fixture(autouse=True)
def tiers() -> None:
    for name, paid in (("One", 0), ("Two", 100)):
        create_usage_tier(actor=OPERATOR, name=name, paid_min_nanos=paid, figures={})


def test_a_payment_lifts_at_once_by_what_it_is_without_tax(tiers, customer, outsider):
    pay(customer, 118, 19)
    assert standing(customer) == (99, "One")
    pay(customer, 1, key="2")
    assert standing(customer) == (100, "Two")
    assert not OrganizationUsageTier.objects.filter(organization_id=outsider.id).exists()


def test_what_is_paid_back_counts_no_more_within_the_hour(tiers, customer):
    pay(customer, 150)
    refund(
        organization_id=customer.id, amount_nanos=60, idempotency_key="back", actor=OPERATOR,
        reason="test", now=NOW,
    )  # fmt: skip
    assert standing(customer) == (150, "Two")
    assert tell_untold(now=timezone.now()) == 1
    assert standing(customer) == (90, "One")
    assert tell_untold(now=timezone.now()) == 0


def is_paying(customer: Customer) -> bool:
    record = last_record("organization", customer.id)
    assert record is not None
    return decode(record.encode(), OrganizationRecord).is_paying


def test_gateways_hear_of_a_first_payment_and_when_all_was_paid_back(tiers, customer):
    publish([FeedRef("organization", customer.id)])
    assert not is_paying(customer)
    pay(customer, 50)
    assert is_paying(customer)
    version = last_version()
    pay(customer, 10, key="2")
    assert last_version() == version, "a second payment in the same tier changes no record"
    refund(
        organization_id=customer.id, amount_nanos=60, idempotency_key="back", actor=OPERATOR,
        reason="test", now=NOW,
    )  # fmt: skip
    tell_untold(now=timezone.now())
    assert not is_paying(customer)


def test_who_paid_before_there_were_tiers_is_found(tiers, customer):
    pay(customer, 150)
    OrganizationUsageTier.objects.all().delete()
    assert tell_untold(now=timezone.now()) == 1
    assert standing(customer) == (150, "Two")

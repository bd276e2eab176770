"""An organization at Stripe: made once, and called as it is called."""

import pytest
from django.utils import timezone

from billing.payments.errors import StripeAway, StripeRefused
from billing.payments.services.customers import ensure_customer
from billing.payments.stripe_api import StripeApi
from control.organizations.models import Organization
from tests.fixtures.organizations import SeededOrganization
from tests.simulation.stripe_double import StripeDouble

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def ensure(org: SeededOrganization) -> str:
    return ensure_customer(org.id, now=timezone.now())


def rename(org: SeededOrganization, name: str) -> None:
    Organization.objects.filter(id=org.id).update(name=name)


def test_a_renamed_organization_is_renamed_at_stripe(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    made = ensure(org)
    for name in ("Acme Ltd", "Acme", "Acme Ltd"):  # back and forth within a key's life
        rename(org, name)
        assert ensure(org) == made
        assert stripe.get("customer", made)["name"] == name
    asked = len(stripe.requests)
    assert ensure(org) == made
    assert len(stripe.requests) == asked


def test_one_renamed_before_stripes_answer_came_is_the_same_customer(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = StripeApi.create_customer

    def lost(api: StripeApi, asked: object, *, key: str) -> object:
        create(api, asked, key=key)  # type: ignore[arg-type]
        raise StripeAway("the answer is lost")

    monkeypatch.setattr(StripeApi, "create_customer", lost)
    with pytest.raises(StripeAway):
        ensure(org)
    monkeypatch.setattr(StripeApi, "create_customer", create)
    rename(org, "Acme Ltd")
    made = ensure(org)
    (customer,) = stripe.all("customer")
    assert (customer["id"], customer["name"]) == (made, "Acme Ltd")


def test_a_name_that_stripe_refuses_is_in_no_payments_way(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ensure(org)

    def refused(*_: object, **__: object) -> None:
        raise StripeRefused("No.")

    monkeypatch.setattr(StripeApi, "rename_customer", refused)
    rename(org, "?")
    assert ensure(org) == made

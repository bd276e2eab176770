"""An organization at Stripe: made once, and called as it is called."""

import pytest
from django.utils import timezone

from billing.payments.errors import StripeAway, StripeRefused
from billing.payments.services.customers import ensure_customer
from billing.payments.stripe_api import StripeApi
from billing.simulation.stripe_double import StripeDouble
from control.tenants.models import Organization
from tests.support.organizations import House

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def ensure(house: House) -> str:
    return ensure_customer(house.id, now=timezone.now())


def rename(house: House, name: str) -> None:
    Organization.objects.filter(id=house.id).update(name=name)


def test_a_renamed_organization_is_renamed_at_stripe(house: House, stripe: StripeDouble) -> None:
    made = ensure(house)
    for name in ("Acme Ltd", "Acme", "Acme Ltd"):  # back and forth within a key's life
        rename(house, name)
        assert ensure(house) == made
        assert stripe.get("customer", made)["name"] == name
    asked = len(stripe.requests)
    assert ensure(house) == made
    assert len(stripe.requests) == asked


def test_one_renamed_before_stripes_answer_came_is_the_same_customer(
    house: House, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = StripeApi.create_customer

    def lost(api: StripeApi, asked: object, *, key: str) -> object:
        create(api, asked, key=key)  # type: ignore[arg-type]
        raise StripeAway("the answer is lost")

    monkeypatch.setattr(StripeApi, "create_customer", lost)
    with pytest.raises(StripeAway):
        ensure(house)
    monkeypatch.setattr(StripeApi, "create_customer", create)
    rename(house, "Acme Ltd")
    made = ensure(house)
    (customer,) = stripe.all("customer")
    assert (customer["id"], customer["name"]) == (made, "Acme Ltd")


def test_a_name_that_stripe_refuses_is_in_no_payments_way(
    house: House, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ensure(house)

    def refused(*_: object, **__: object) -> None:
        raise StripeRefused("No.")

    monkeypatch.setattr(StripeApi, "rename_customer", refused)
    rename(house, "?")
    assert ensure(house) == made

"""Payment methods and top-ups in the management API: who may, once, and clear refusals."""

import dataclasses
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from billing.payments.models import StripePayment
from control.outbox.services import deliver_due
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.paying import balance_cents, save_card, settle
from tests.simulation.stripe_double import Fault, StripeDouble

pytestmark = [pytest.mark.integration, pytest.mark.django_db]

ONCE = {"Idempotency-Key": "k1"}


@pytest.fixture
def api(org: SeededOrganization) -> APIClient:
    return org.api()


def post(client: APIClient, body: dict[str, Any], **headers: str) -> Any:
    return client.post("credit-purchases", body, headers=headers)


def test_a_top_up_with_a_saved_method(
    org: SeededOrganization, stripe: StripeDouble, api: APIClient
) -> None:
    method = save_card(org, stripe)
    body = {"amount_cents": 5_000, "payment_method_id": method.id}
    first, second = post(api, body, **ONCE), post(api, body, **ONCE)
    assert (first.status_code, first.json()) == (201, second.json())
    settle(stripe)
    shown = api.get(f"credit-purchases/{first.json()['id']}").json()
    assert (shown["status"], shown["amount_cents"], shown["currency"]) == (
        "succeeded",
        5_000,
        "usd",
    )
    assert [each["id"] for each in api.get("credit-purchases").json()["data"]] == [shown["id"]]
    assert balance_cents(org) == 5_000


def test_a_quote_says_the_total_and_another_total_is_not_charged(
    org: SeededOrganization, stripe: StripeDouble, api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("billing.payments.services.asking.tax_on_top_up", lambda *_, **__: 950)
    method = save_card(org, stripe)
    quote = api.post("credit-purchase-quotes", {"amount_cents": 5_000})
    assert (quote.status_code, quote.json()) == (
        200,
        {"amount_cents": 5_000, "tax_cents": 950, "total_cents": 5_950},
    )
    body = {"amount_cents": 5_000, "payment_method_id": method.id}
    refused = post(api, body | {"total_cents": 5_000}, **ONCE)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "other_total")
    assert not StripePayment.objects.exists()
    made = post(api, body | {"total_cents": 5_950}, **ONCE).json()
    assert (made["tax_cents"], made["total_cents"]) == (950, 5_950)


def test_a_quote_of_too_little_is_refused(stripe: StripeDouble, api: APIClient) -> None:
    assert api.post("credit-purchase-quotes", {"amount_cents": 1}).status_code == 400


def test_without_a_method_a_page_takes_one(stripe: StripeDouble, api: APIClient) -> None:
    reply = post(api, {"amount_cents": 5_000}, **ONCE).json()
    assert (reply["status"], reply["url"][:29]) == ("open", "https://checkout.stripe.com/c")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "amount_cents"),
        ({"amount_cents": -5_000}, "amount_cents"),
        ({"amount_cents": 0}, "amount_cents"),
        ({"amount_cents": 10**30}, "amount_cents"),
        ({"amount_cents": "NaN"}, "amount_cents"),
        ({"amount_cents": 500.5}, "amount_cents"),
        ({"amount_cents": 5_000, "currency": "eur"}, "currency"),
        ({"amount_cents": 5_000, "tax_cents": 1}, "tax_cents"),
    ],
)
def test_a_bad_wish_is_named_and_asks_nothing(
    stripe: StripeDouble, api: APIClient, body: dict[str, Any], param: str
) -> None:
    reply = post(api, body, **ONCE)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert not StripePayment.objects.exists()


def test_every_post_about_money_names_itself(stripe: StripeDouble, api: APIClient) -> None:
    reply = post(api, {"amount_cents": 5_000})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "Idempotency-Key")
    assert post(api, {"amount_cents": 5_000}, **{"Idempotency-Key": "x" * 65}).status_code == 400
    assert post(api, {"amount_cents": 5_000}, **ONCE).status_code == 201
    reply = post(api, {"amount_cents": 6_000}, **ONCE)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "idempotency_conflict")


def test_the_default_moves_and_a_removed_method_is_gone(
    org: SeededOrganization, stripe: StripeDouble, api: APIClient
) -> None:
    first, second = save_card(org, stripe), save_card(org, stripe, "pm_card_mastercard")
    reply = api.patch(f"payment-methods/{second.id}", {"is_default": True})
    assert reply.json()["is_default"] is True
    assert api.patch(f"payment-methods/{second.id}", {"is_default": False}).status_code == 400
    assert api.delete(f"payment-methods/{second.id}").status_code == 204
    (left,) = api.get("payment-methods").json()["data"]
    assert (left["id"], left["is_default"]) == (first.id, True)
    settle(stripe)
    assert stripe.things[second.stripe_id]["customer"] is None
    body = {"amount_cents": 5_000, "payment_method_id": second.id}
    assert post(api, body, **ONCE).status_code == 404


def test_saving_a_method_is_stripes_page(stripe: StripeDouble, api: APIClient) -> None:
    reply = api.post("payment-methods")
    assert reply.status_code == 201
    assert reply.json()["url"].startswith("https://checkout.stripe.com/")


def test_automatic_top_ups_are_set(
    org: SeededOrganization, stripe: StripeDouble, api: APIClient
) -> None:
    body = {
        "is_on": True, "threshold_cents": 1_000, "amount_cents": 5_000, "monthly_cap_cents": 9_000,
    }  # fmt: skip
    assert api.get("auto-recharge").status_code == 404
    assert api.put("auto-recharge", body).json()["error"]["code"] == "no_payment_method"
    save_card(org, stripe)
    assert api.put("auto-recharge", body).json() == body | {"stopped_at": None}
    assert api.get("auto-recharge").json()["amount_cents"] == 5_000


def test_without_stripe_it_says_so(org: SeededOrganization, api: APIClient) -> None:
    assert api.get("payment-methods").json()["data"] == []
    reply = post(api, {"amount_cents": 5_000}, **ONCE)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "stripe_not_configured")


def test_a_stripe_that_is_away_loses_nothing(
    org: SeededOrganization, stripe: StripeDouble, api: APIClient
) -> None:
    stripe.faults.append(Fault("lost_before", "customers", times=3))
    reply = post(api, {"amount_cents": 5_000}, **ONCE)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "payments_unavailable")
    assert reply["Retry-After"] == "5"
    assert post(api, {"amount_cents": 5_000}, **ONCE).json()["status"] == "open"
    assert StripePayment.objects.count() == 1


def test_rows_of_another_mode_are_not_seen(
    org: SeededOrganization, stripe: StripeDouble, api: APIClient, settings
) -> None:
    save_card(org, stripe)
    post(api, {"amount_cents": 5_000}, **ONCE)
    keys = dataclasses.replace(stripe.keys, mode="live", secret="sk_live_x")
    settings.CONFIG = dataclasses.replace(settings.CONFIG, stripe=keys)
    assert api.get("payment-methods").json()["data"] == []
    assert api.get("credit-purchases").json()["data"] == []
    deliver_due(now=timezone.now())
    assert stripe.succeeded() == []

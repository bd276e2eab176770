"""The double itself: it refuses what Stripe refuses, by stripe-python's own types."""

import dataclasses
from typing import Any

import pytest
import requests

from billing.payments.errors import Declined, NotThere, StripeAway, StripeRefused
from billing.payments.stripe_api import StripeApi
from tests.fixtures.stripe_server import running_stripe
from tests.simulation.stripe_double import Fault, StripeDouble
from tests.simulation.stripe_double.faults import FaultKind
from tests.simulation.stripe_double.webhooks import signed

pytestmark = pytest.mark.integration


@pytest.fixture
def stripe() -> Any:
    with running_stripe() as double:
        yield double


@pytest.fixture
def api(stripe: StripeDouble) -> StripeApi:
    return StripeApi(stripe.keys)


@pytest.fixture
def asked(stripe: StripeDouble) -> dict[str, Any]:
    """Return a payment that Stripe would take."""
    customer = stripe.make("customer")["id"]
    method = stripe.save_method("pm_card_visa", customer)["id"]
    return {
        "amount": 500, "currency": "usd", "customer": customer, "payment_method": method,
        "confirm": True, "off_session": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"amount": 49}, {"amount": -500}, {"amount": 10**9}, {"amount": "many"},
        {"currency": "xyz"}, {"payment_method": "pm_none"}, {"confirm": "perhaps"},
        {"payment_method_types": ["card"]}, {"confirm": False},
    ],
)  # fmt: skip
def test_a_question_that_stripe_refuses(
    stripe: StripeDouble, api: StripeApi, asked: dict[str, Any], changes: dict[str, Any]
) -> None:
    with pytest.raises((StripeRefused, NotThere)):
        api.create_intent(asked | changes, key="k")  # type: ignore[arg-type]
    assert stripe.succeeded() == []


def test_what_must_be_there_is_missed(api: StripeApi, asked: dict[str, Any]) -> None:
    del asked["amount"]
    with pytest.raises(StripeRefused, match="Missing required param: amount"):
        api.create_intent(asked, key="k")  # type: ignore[arg-type]


def test_a_key_names_one_question(
    stripe: StripeDouble, api: StripeApi, asked: dict[str, Any]
) -> None:
    first = api.create_intent(asked, key="k")  # type: ignore[arg-type]
    assert api.create_intent(asked, key="k").id == first.id  # type: ignore[arg-type]
    with pytest.raises(StripeRefused, match="same call"):
        api.create_intent(asked | {"amount": 600}, key="k")  # type: ignore[arg-type]
    assert len(stripe.succeeded()) == 1


def test_a_post_without_a_key_is_refused(stripe: StripeDouble) -> None:
    headers = {
        "Authorization": f"Bearer {stripe.keys.secret}", "Stripe-Version": "2026-10-28.endive",
    }  # fmt: skip
    reply = requests.post(f"{stripe.url}/v1/customers", headers=headers, timeout=60)
    assert (reply.status_code, "Idempotency-Key" in reply.text) == (400, True)


def test_another_key_or_mode_gets_nowhere(stripe: StripeDouble) -> None:
    for secret in ("sk_live_double", "sk_test_other"):
        keys = dataclasses.replace(stripe.keys, secret=secret)
        with pytest.raises(StripeAway):
            StripeApi(keys).create_customer({"name": "x"}, key="k")


@pytest.mark.parametrize(
    ("card", "code"),
    [
        ("pm_card_chargeCustomerFail", "generic_decline"),
        ("pm_card_authenticationRequired", "authentication_required"),
    ],
)
def test_declines_name_their_payment(
    stripe: StripeDouble, api: StripeApi, asked: dict[str, Any], card: str, code: str
) -> None:
    asked["payment_method"] = stripe.save_method(card, asked["customer"])["id"]
    with pytest.raises(Declined) as refused:
        api.create_intent(asked, key="k")  # type: ignore[arg-type]
    assert refused.value.code == code
    assert api.intent(str(refused.value.intent_id)).status == "requires_payment_method"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stripe._http_client.HTTPClient.INITIAL_DELAY", 0.001)
    monkeypatch.setattr("stripe._http_client.HTTPClient.MAX_DELAY", 0.002)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("kind", "times", "is_away"),
    [
        ("lost_before", 1, False), ("lost_after", 1, False),
        ("lost_before", 3, True), ("lost_after", 3, True), ("rate_limit", 1, True),
    ],
)  # fmt: skip
def test_what_is_lost_on_the_way_is_charged_once(
    stripe: StripeDouble, asked: dict[str, Any], kind: FaultKind, times: int, is_away: bool
) -> None:
    """stripe-python asks again itself, twice, where a connection ends without an answer."""
    api = StripeApi(stripe.keys)
    stripe.faults.append(Fault(kind, "payment_intents", times=times))
    if is_away:
        with pytest.raises(StripeAway):
            api.create_intent(asked, key="k")  # type: ignore[arg-type]
    api.create_intent(asked, key="k")  # type: ignore[arg-type]
    assert len(stripe.succeeded()) == 1


def test_another_customers_method_is_refused(
    stripe: StripeDouble, api: StripeApi, asked: dict[str, Any]
) -> None:
    asked["customer"] = stripe.make("customer")["id"]
    with pytest.raises(StripeRefused, match="does not belong"):
        api.create_intent(asked, key="k")  # type: ignore[arg-type]


def test_only_what_came_in_goes_back(
    stripe: StripeDouble, api: StripeApi, asked: dict[str, Any]
) -> None:
    intent = api.create_intent(asked, key="k")  # type: ignore[arg-type]
    with pytest.raises(StripeRefused, match="greater"):
        api.create_refund({"payment_intent": intent.id, "amount": 501}, key="r1")
    api.create_refund({"payment_intent": intent.id, "amount": 500}, key="r2")
    with pytest.raises(StripeRefused, match="already been refunded"):
        api.create_refund({"payment_intent": intent.id}, key="r3")


def test_its_signature_is_what_the_library_computes() -> None:
    from stripe import WebhookSignature

    body, header = signed({"id": "evt_1"}, "whsec_x", at=1_700_000_000)
    theirs = WebhookSignature.generate_signature_header(body.decode(), "whsec_x", 1_700_000_000)
    assert header == theirs

"""The same services against localstripe, which somebody else wrote: customers, methods, payments,
declines, refunds, and webhooks with its own signatures."""

import dataclasses
import socket
import uuid
from collections.abc import Iterator
from threading import Thread

import pytest
import requests
import stripe as library
from django.test import Client
from django.utils import timezone

from billing.payments.inbox import process_inbox
from billing.payments.models import PaymentMethod, StripeEvent
from billing.payments.services import refund_payment
from billing.payments.services.customers import ensure_customer
from billing.payments.services.refunding import pay_back
from billing.payments.stripe_api import StripeApi, stripe_api
from billing.payments.syncing import sync_intent, sync_method, sync_refund, sync_setup
from control.config import StripeKeys
from control.outbox.services import deliver_due
from tests.fixtures.localstripe import OlderStripe, running_localstripe
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from tests.fixtures.paying import WEBHOOK, ask_top_up, balance_cents

pytestmark = [pytest.mark.integration, pytest.mark.django_db]

GOOD, DECLINED_LATER = "4242424242424242", "4000000000000341"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_localstripe() as url:
        yield url


@pytest.fixture
def api(url: str, settings, monkeypatch: pytest.MonkeyPatch) -> StripeApi:
    monkeypatch.setattr(library, "RequestsClient", OlderStripe)
    keys = StripeKeys(
        secret=f"sk_test_{uuid.uuid4().hex}", publishable="pk_test_x",
        webhook_secrets=("whsec_local",), mode="test", api_base=url,
    )  # fmt: skip
    settings.CONFIG = dataclasses.replace(settings.CONFIG, stripe=keys)
    return stripe_api()


def save(org: SeededOrganization, api: StripeApi, number: str = GOOD) -> PaymentMethod:
    """Save a card as Stripe's page does: a set-up, confirmed with the card's number."""
    customer = ensure_customer(org.id, now=timezone.now())
    setup = api.create_setup({"customer": customer, "usage": "off_session"}, key=str(uuid.uuid4()))
    auth = {"Authorization": f"Bearer {api.keys.secret}"}
    card = {
        "type": "card", "card[number]": number, "card[exp_month]": "8", "card[exp_year]": "2035",
        "card[cvc]": "123",
    }  # fmt: skip
    base = f"{api.keys.api_base}/v1"
    made = requests.post(f"{base}/payment_methods", card, headers=auth, timeout=60).json()
    attach = f"{base}/payment_methods/{made['id']}/attach"
    assert requests.post(attach, {"customer": customer}, headers=auth, timeout=60).ok
    confirm = f"{base}/setup_intents/{setup.id}/confirm"
    assert requests.post(confirm, {"payment_method": made["id"]}, headers=auth, timeout=60).ok
    sync_setup(setup.id, now=timezone.now())
    return PaymentMethod.objects.get(stripe_id=made["id"])


def test_a_card_is_saved_pays_and_is_paid_back(org: SeededOrganization, api: StripeApi) -> None:
    method = save(org, api)
    assert (str(method), method.is_default) == ("Visa …4242", True)
    payment = ask_top_up(org, 5_000)
    deliver_due(now=timezone.now())
    payment.refresh_from_db()
    assert (payment.status, balance_cents(org)) == ("succeeded", 5_000)
    sync_intent(str(payment.intent_id), now=timezone.now())
    refund = refund_payment(
        payment_id=payment.id, amount_cents=2_000, idempotency_key="r", actor=OPERATOR, reason="",
        now=timezone.now(),
    )  # fmt: skip
    pay_back(refund.id, now=timezone.now())
    refund.refresh_from_db()
    sync_refund(str(refund.stripe_id), now=timezone.now())
    assert (refund.status, balance_cents(org)) == ("succeeded", 3_000)


def test_a_card_that_is_declined_later_gives_nothing(
    org: SeededOrganization, api: StripeApi
) -> None:
    save(org, api, DECLINED_LATER)
    payment = ask_top_up(org)
    deliver_due(now=timezone.now())
    payment.refresh_from_db()
    assert (payment.status, payment.failure_code) == ("failed", "card_declined")
    assert balance_cents(org) == 0


def test_a_detached_card_pays_no_more(org: SeededOrganization, api: StripeApi) -> None:
    method = save(org, api)
    api.detach_method(method.stripe_id, key="d")
    sync_method(method.stripe_id, now=timezone.now())
    method.refresh_from_db()
    assert method.detached_at is not None


def test_what_is_asked_again_is_found_by_our_name(org: SeededOrganization, api: StripeApi) -> None:
    save(org, api)
    payment = ask_top_up(org)
    deliver_due(now=timezone.now())
    payment.refresh_from_db()
    found = [each.id for each in api.intents_of(payment.customer_stripe_id, 0)]
    assert payment.intent_id in found
    assert next(iter(api.refunds_of(str(payment.intent_id))), None) is None


def test_its_webhooks_are_believed_by_their_signature(
    org: SeededOrganization, api: StripeApi, url: str
) -> None:
    save(org, api)
    with Mailbox() as box:
        hook = f"{url}/_config/webhooks/ours"
        data = {
            "url": box.url, "secret": "whsec_local", "events": ["payment_intent.succeeded"],
        }  # fmt: skip
        assert requests.post(hook, json=data, timeout=60).ok
        ask_top_up(org)
        deliver_due(now=timezone.now())
        headers, body = box.wait()
    reply = Client().post(
        WEBHOOK, body, content_type="application/json",
        headers={"stripe-signature": headers["stripe-signature"]},
    )  # fmt: skip
    assert reply.status_code == 200
    assert StripeEvent.objects.get().type == "payment_intent.succeeded"
    process_inbox(now=timezone.now())
    assert balance_cents(org) == 5_000


class Mailbox:
    """Takes one HTTP request."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(60)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/"
        self.got: list[bytes] = []
        self.thread = Thread(target=self._take, daemon=True)

    def __enter__(self) -> "Mailbox":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    def wait(self) -> tuple[dict[str, str], bytes]:
        self.thread.join(60)
        assert self.got, "waited in vain for a webhook"
        head, _, body = self.got[0].partition(b"\r\n\r\n")
        lines = [line.partition(": ") for line in head.decode().split("\r\n")[1:]]
        return {name.lower(): value for name, _, value in lines}, body

    def _take(self) -> None:
        connection, _ = self.listener.accept()
        with connection:
            connection.settimeout(60)
            data = b""
            while not self._is_whole(data):
                data += connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            self.got.append(data)

    def _is_whole(self, data: bytes) -> bool:
        head, found, body = data.partition(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n")
             if line.lower().startswith(b"content-length:")), 0,
        )  # fmt: skip
        return bool(found) and len(body) >= length

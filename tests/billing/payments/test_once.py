"""Nothing is charged twice: not by lost answers, not by a process killed between any two steps, not
by news in any order."""

import copy
import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.payments import stripe_api as api_module
from billing.payments.inbox import process_inbox
from billing.payments.models import Refund, StripePayment
from billing.payments.services import refund_payment
from billing.payments.services.collecting import ASKED_AT_MOST, collect
from billing.payments.services.refunding import pay_back
from billing.payments.syncing import sync_open
from control.outbox.services import deliver_due
from tests.fixtures.corpus import quarter
from tests.fixtures.database import let_transaction_last
from tests.fixtures.organizations import OPERATOR, SeededOrganization, make_organization
from tests.fixtures.paying import (
    ask_checkout,
    ask_top_up,
    balance_cents,
    deliver,
    save_card,
    settle,
    state_of,
    take_in,
)
from tests.fixtures.stripe_server import storm
from tests.simulation.stripe_double import Fault, StripeDouble

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def patient(db: None) -> None:
    """A test is one transaction, and these take longer than any of the product's may."""
    let_transaction_last()


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Kill whatever runs inside at its nth step: before a statement, before a call to Stripe, or
    after the call and before its answer is looked at."""
    count = [0]

    def one_step() -> None:
        count[0] += 1
        if count[0] == step:
            raise Killed

    def around(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not sql.startswith(("SAVEPOINT", "RELEASE", "ROLLBACK")):
            one_step()
        return execute(sql, params, many, context)

    translated = api_module.translated

    @contextmanager
    def stepping() -> Iterator[None]:
        one_step()
        with translated():
            yield
        one_step()

    with monkeypatch.context() as patch, connection.execute_wrapper(around):
        patch.setattr(api_module, "translated", stepping)
        try:
            yield count
        except Killed:
            return


@contextmanager
def undone(double: StripeDouble) -> Iterator[None]:
    """Undo what happens inside, in the database and at Stripe: each crash finds the same state."""
    before = copy.deepcopy(vars(double))
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
    vars(double).update(before)


def prepared(org: SeededOrganization, double: StripeDouble) -> StripePayment:
    save_card(org, double)
    return ask_top_up(org)


PARTS = 4
"""Each part takes every fourth step, so that one alone comes to all of a call."""


@pytest.mark.parametrize("part", quarter(range(PARTS)))
def test_a_top_up_killed_anywhere_is_charged_once(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    prepared(org, stripe)
    settle(stripe)  # a payment that another attempt must not be taken for
    payment = ask_top_up(org)
    for number, step in enumerate(itertools.count(part + 1, PARTS)):
        with undone(stripe):
            with killed_at(step, monkeypatch) as count:
                collect(payment.id, now=timezone.now())
            if number % 2:
                collect(payment.id, now=timezone.now())
            settle(stripe, now=timezone.now() + timedelta(minutes=3))
            assert StripePayment.objects.get(id=payment.id).status == "succeeded"
            assert (len(stripe.succeeded()), balance_cents(org)) == (2, 10_000)
        if count[0] < step:
            return


@pytest.mark.parametrize("part", quarter(range(PARTS)))
def test_a_refund_killed_anywhere_is_paid_once(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    payment = prepared(org, stripe)
    settle(stripe)
    refunds = [
        refund_payment(
            payment_id=payment.id, amount_cents=1_000, idempotency_key=key, actor=OPERATOR,
            reason="", now=timezone.now(),
        )
        for key in ("another", "this")
    ]  # fmt: skip
    pay_back(refunds[0].id, now=timezone.now())
    for step in itertools.count(part + 1, PARTS):
        with undone(stripe):
            with killed_at(step, monkeypatch) as count:
                pay_back(refunds[1].id, now=timezone.now())
            settle(stripe, now=timezone.now() + timedelta(minutes=3))
            assert Refund.objects.get(id=refunds[1].id).status == "succeeded"
            assert len(stripe.all("refund")) == len(refunds)
            assert balance_cents(org) == 3_000
        if count[0] < step:
            return


@pytest.mark.parametrize("part", quarter(range(PARTS)))
def test_webhooks_killed_anywhere_book_once(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    payment = ask_checkout(org)
    stripe.pay(payment.checkout_id or "")
    for event in stripe.events[-3:]:
        take_in(event)
    for step in itertools.count(part + 1, PARTS):
        with undone(stripe):
            with killed_at(step, monkeypatch) as count, transaction.atomic():
                process_inbox(now=timezone.now())
            later = timezone.now() + timedelta(minutes=3)
            while process_inbox(now=later):
                pass
            assert balance_cents(org) == 5_000
        if count[0] < step:
            return


@pytest.mark.parametrize("kind", ["lost_before", "lost_after", "rate_limit"])
@pytest.mark.parametrize("times", [1, 3, 4, 7])
def test_an_answer_that_is_lost_charges_once(
    org: SeededOrganization, stripe: StripeDouble, kind: str, times: int
) -> None:
    payment = prepared(org, stripe)
    stripe.faults.append(Fault(kind, "payment_intents", times=times))  # type: ignore[arg-type]
    for hours in range(9):
        deliver_due(now=timezone.now() + timedelta(hours=2 * hours))
    deliver(stripe)
    assert (len(stripe.succeeded()), balance_cents(org)) == (1, 5_000)
    assert StripePayment.objects.get(id=payment.id).status == "succeeded"


def test_who_asks_late_looks_before(org: SeededOrganization, stripe: StripeDouble) -> None:
    """Stripe forgets an idempotency key after a day; the payment still names our row."""
    payment = prepared(org, stripe)
    stripe.faults.append(Fault("lost_after", "payment_intents", times=3))
    deliver_due(now=timezone.now())
    stripe.answers.clear()
    deliver_due(now=timezone.now() + timedelta(hours=30))
    assert StripePayment.objects.get(id=payment.id).status == "succeeded"
    assert (len(stripe.succeeded()), balance_cents(org)) == (1, 5_000)


def test_what_stripe_never_heard_of_is_given_up(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    payment = prepared(org, stripe)
    stripe.faults.append(Fault("lost_before", "payment_intents", times=3))
    deliver_due(now=timezone.now())
    deliver_due(now=timezone.now() + ASKED_AT_MOST + timedelta(hours=1))
    assert StripePayment.objects.get(id=payment.id).status == "canceled"
    assert (stripe.succeeded(), balance_cents(org)) == ([], 0)


def test_an_error_of_stripes_is_asked_again_with_the_same_key(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    payment = prepared(org, stripe)
    stripe.faults.append(Fault("server_error", "payment_intents"))
    for hours in range(3):
        deliver_due(now=timezone.now() + timedelta(hours=hours))
    assert set(stripe.posts("payment_intents")) == {f"collect:{payment.id}"}
    assert StripePayment.objects.get(id=payment.id).status == "created"


def test_payments_end_where_no_webhook_ever_comes(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe, "pm_usBankAccount_success")
    debit = ask_top_up(org)
    page = ask_checkout(org)
    deliver_due(now=timezone.now())
    stripe.settle_debit(str(StripePayment.objects.get(id=debit.id).intent_id))
    stripe.pay(page.checkout_id or "")
    assert sync_open(now=timezone.now() + timedelta(minutes=6)) == 2
    assert balance_cents(org) == 10_000
    assert sync_open(now=timezone.now() + timedelta(minutes=12)) == 0


def test_a_confirmation_that_never_comes_ends(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe, "pm_card_authenticationRequired")
    payment = ask_top_up(org)
    deliver_due(now=timezone.now())
    assert StripePayment.objects.get(id=payment.id).status == "requires_action"
    sync_open(now=timezone.now() + timedelta(hours=25))
    assert StripePayment.objects.get(id=payment.id).status == "canceled"


def live_a_while(org: SeededOrganization, double: StripeDouble, deeds: list[str]) -> None:
    """Do what customers, banks and operators do, before any webhook arrives."""
    for deed in deeds:
        if deed == "checkout":
            double.pay(ask_checkout(org).checkout_id or "")
        elif deed == "declined":
            page = ask_checkout(org)
            double.pay(page.checkout_id or "", "pm_card_chargeDeclined")
            double.expire(page.checkout_id or "")
        elif deed == "refund" and double.succeeded():
            _quietly(lambda: double.pay_back(double.succeeded()[0]["id"], 700))
        elif deed == "dispute" and double.succeeded():
            _quietly(lambda: _dispute_once(double, double.succeeded()[-1]["id"]))
        elif deed == "won" and double.all("dispute"):
            dispute = double.all("dispute")[0]
            if dispute["status"] == "needs_response":
                double.close_dispute(dispute["id"], is_won=True)
        elif deed == "bounce" and double.all("refund"):
            refund = double.all("refund")[0]
            if refund["status"] == "succeeded":
                double.bounce_refund(refund["id"])


def _dispute_once(double: StripeDouble, intent_id: str) -> None:
    if all(each["payment_intent"] != intent_id for each in double.all("dispute")):
        double.open_dispute(intent_id)


def _quietly(act: Any) -> None:
    from tests.simulation.stripe_double.errors import ApiError

    try:
        act()
    except ApiError:
        return


DEEDS = st.lists(
    st.sampled_from(["checkout", "declined", "refund", "dispute", "won", "bounce"]),
    min_size=2,
    max_size=7,
)


@pytest.mark.django_db(transaction=True)  # else all examples would be one long transaction
@given(deeds=DEEDS, seed=st.integers(0, 2**32), page=st.sampled_from([1, 3, 200]))
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_order_and_repetition_gives_one_state(
    db: None, stripe: StripeDouble, deeds: list[str], seed: int, page: int
) -> None:
    states = []
    for in_order in (True, False):
        stripe.forget()
        with transaction.atomic():
            let_transaction_last()
            org = make_organization(f"Any{in_order}")
            live_a_while(org, stripe, deeds)
            if in_order:
                deliver(stripe)
            else:
                _deliver_wildly(stripe, seed, page)
            states.append(state_of(org).replace(org.id, "org"))
            transaction.set_rollback(True)
    assert states[0] == states[1]


def _deliver_wildly(double: StripeDouble, seed: int, page: int) -> None:
    chance = random.Random(seed)
    for event in storm(double.events, seed=seed):
        take_in(event)
        if chance.random() < 0.3:
            process_inbox(now=timezone.now(), page=page)
    while process_inbox(now=timezone.now(), page=page):
        pass


def test_a_storm_is_one_state(db: None, stripe: StripeDouble) -> None:
    orgs = [make_organization(f"Storm{n}") for n in range(3)]
    for org in orgs:
        for _ in range(2):
            stripe.pay(ask_checkout(org).checkout_id or "")
    for event in storm(stripe.events, seed=7):
        take_in(event)
    while process_inbox(now=timezone.now(), page=7):
        pass
    assert [balance_cents(org) for org in orgs] == [10_000] * 3
    assert len(stripe.succeeded()) == 6

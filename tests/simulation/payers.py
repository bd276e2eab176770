"""Who pays through Stripe, what they remember of it, and what they and their banks do there."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from billing.payments import inbox
from tests.simulation.clock import Clock
from tests.simulation.line import StripeLine
from tests.simulation.schedule import pause
from tests.simulation.stripe_double import KEYS, StripeDouble
from tests.simulation.stripe_double.webhooks import signed

TYPED = ("pm_card_visa",) * 4 + (
    "pm_card_chargeDeclined", "pm_card_authenticationRequired", "pm_card_createDispute",
    "pm_usBankAccount_success",
)  # fmt: skip
"""What a customer types on Stripe's page."""
SAVED = ("pm_card_visa",) * 3 + (
    "pm_card_mastercard", "pm_card_chargeCustomerFail", "pm_card_authenticationRequired",
    "pm_usBankAccount_success",
)  # fmt: skip
OPEN_DISPUTES = ("needs_response", "warning_needs_response")
AGAIN_SHARE = 0.3
"""How often a webhook comes again."""
PAID_SHARE = 0.6
"""How often a bank debit comes through."""
Thing = dict[str, Any]
Act = Callable[[], object]


@dataclass(frozen=True, slots=True)
class TopUp:
    """A top-up that a customer wants, by its key; without a method it is paid on Stripe's page."""

    amount_cents: int
    method_id: str | None


@dataclass(frozen=True, slots=True)
class PaidBack:
    """A refund that the operator wants, by its key."""

    payment_id: str
    amount_cents: int


@dataclass(slots=True)
class Payers:
    """Customers, their banks and the operator, as far as they speak with Stripe."""

    line: StripeLine
    top_ups: dict[tuple[str, str], TopUp] = field(default_factory=dict)
    """By organization and key."""
    refunds: dict[str, PaidBack] = field(default_factory=dict)
    automatic: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Threshold, amount and cap of automatic top-ups, each time they were set, by organization."""
    unasked: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Whose customer paid how many cents that nobody asked for, by Stripe's id of it."""
    sent: set[str] = field(default_factory=set)
    """Webhooks that were tried."""
    taken: set[str] = field(default_factory=set)
    """Webhooks that were answered with 200."""

    @property
    def stripe(self) -> StripeDouble:
        """Stripe itself."""
        return self.line.double

    def some_events(self, rng: random.Random) -> list[Thing]:
        """Return webhooks in any order: some that never came, and some that did."""
        fresh = [each for each in self.stripe.events if each["id"] not in self.taken]
        old = [each for each in self.stripe.events if each["id"] in self.taken]
        chosen = rng.sample(fresh, min(len(fresh), rng.randint(1, 5)))
        if old and rng.random() < AGAIN_SHARE:
            chosen += rng.choices(old, k=2)
        rng.shuffle(chosen)
        return chosen

    def deliver(self, event: Thing, now: datetime) -> None:
        """Send a webhook as Stripe does."""
        body, signature = signed(event, KEYS.webhook_secrets[0])
        self.sent.add(event["id"])
        inbox.receive(inbox.verify(body, signature, KEYS), body, now=now)
        self.taken.add(event["id"])

    def act(self, rng: random.Random) -> None:
        """Do one thing of those that can be done at Stripe now."""
        pause("somebody acts at Stripe")
        acts = [*self._of_pages(rng), *self._of_payments(rng), *self._of_returns(rng)]
        if self.line.late:
            acts.append(lambda: self.line.let_arrive(1))
        if acts:
            rng.choice(acts)()

    def end_acts(self, rng: random.Random) -> None:
        """Let banks decide what waits for them, and pages end; who has not confirmed never does."""
        self.line.let_arrive(len(self.line.late))
        for page in self._with("checkout.session", status="open"):
            self.stripe.expire(page["id"])
        for intent in self._with("payment_intent", status="processing"):
            self.stripe.settle_debit(intent["id"], is_paid=rng.random() < PAID_SHARE)
        for dispute in self._undecided()[::2]:
            self.stripe.close_dispute(dispute["id"], is_won=rng.random() < 0.5)

    def _of_pages(self, rng: random.Random) -> list[Act]:
        acts: list[Act] = []
        for page in self._with("checkout.session", status="open", mode="payment"):
            acts += [partial(self._pay, page["id"], rng.choice(TYPED))] * 3
            acts.append(partial(self.stripe.expire, page["id"]))
        return acts

    def _pay(self, page_id: str, card: str) -> None:
        """Pay on a page; what the bank asks there is confirmed there."""
        page = self.stripe.pay(page_id, card)
        intent = self.stripe.things[page["payment_intent"]]
        if intent["status"] == "requires_action":
            self.stripe.confirm(intent["id"])
            page.update(payment_status="paid")

    def _of_payments(self, rng: random.Random) -> list[Act]:
        asking = self._with("payment_intent", status="requires_action")
        debits = self._with("payment_intent", status="processing")
        confirms: list[Act] = [partial(self.stripe.confirm, each["id"]) for each in asking]
        return confirms + [
            partial(self.stripe.settle_debit, each["id"], is_paid=rng.random() < PAID_SHARE)
            for each in debits
        ]

    def _of_returns(self, rng: random.Random) -> list[Act]:
        """Banks ask payments back, decide, and send refunds back; someone refunds at Stripe's."""
        acts: list[Act] = []
        for intent in self._with("payment_intent", status="succeeded"):
            charge = self.stripe.things[intent["latest_charge"]]
            left = charge["amount"] - charge["amount_refunded"]
            if charge["disputed"] or left <= 0:
                continue
            part, asks = rng.choice((left, 1, max(left // 3, 1))), rng.random() < 0.2
            acts.append(partial(self.stripe.pay_back, intent["id"], part))
            acts.append(partial(self.stripe.open_dispute, intent["id"], part, asks=asks))
        for dispute in self._undecided():
            is_won = rng.random() < 0.5
            acts += [partial(self.stripe.close_dispute, dispute["id"], is_won=is_won)] * 2
        for refund in self._with("refund", status="succeeded"):
            acts.append(partial(self.stripe.bounce_refund, refund["id"]))
        return acts

    def _undecided(self) -> list[Thing]:
        return [each for status in OPEN_DISPUTES for each in self._with("dispute", status=status)]

    def _with(self, kind: str, **values: str) -> list[Thing]:
        return [
            each for each in self.stripe.all(kind)
            if all(each[name] == value for name, value in values.items())
        ]  # fmt: skip


def make_payers(clock: Clock) -> Payers:
    """Return payers whose Stripe lives by a clock."""
    double = StripeDouble()
    double.clock = lambda: clock.now.timestamp()  # noqa: PLW0108 -- the clock moves
    return Payers(StripeLine(double))

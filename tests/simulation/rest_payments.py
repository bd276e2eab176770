"""Payments come to rest: banks decide, pages end, webhooks come or are lost, and the beat finds
what they would have told. Then everything is looked at again, and nothing may follow from that."""

import random
from datetime import timedelta
from typing import Any

import psycopg

from billing.payments.inbox import process_inbox
from billing.payments.models import OPEN, StripePayment
from billing.payments.nights import reconcile
from billing.payments.selectors import open_gaps
from billing.payments.syncing import SYNC, sync_open
from control.errors import ServiceError
from tests.simulation.audit_automatic import top_up_where_wanted
from tests.simulation.audit_payments import check_told
from tests.simulation.cast import Cast
from tests.simulation.deeds.payments import ask_stripe, ask_top_up
from tests.simulation.oracle import require
from tests.simulation.payers import TopUp
from tests.simulation.unasked import pay_unasked
from tests.simulation.world import FIRST_DAY

LOST_SHARE = 0.3
"""How many webhooks never come."""
ROUNDS, HOURS = 6, 12
"""Longer in all than anything at Stripe is waited for."""
TRIES_MAX = 50
LOOKED_AT = {
    "payment_intent": ("intent", "refunds"),
    "checkout.session": ("session",),
    "setup_intent": ("setup",),
    "payment_method": ("method",),
    "refund": ("refund",),
    "dispute": ("dispute",),
}
STATE = """
/* All that money has to do with. A page that nobody was led to may be heard of late, so may a card
   that was declined on it, and a method that nobody uses. */
SELECT (SELECT json_agg(to_jsonb(one) - 'looked_at' - 'checkout_id' - 'intent_id' ORDER BY id)
        FROM payments_payment AS one),
    (SELECT json_agg(to_jsonb(one) - 'looked_at' ORDER BY id) FROM payments_refund AS one),
    (SELECT json_agg(one ORDER BY stripe_id) FROM payments_dispute AS one),
    (SELECT json_agg(one ORDER BY organization_id) FROM payments_auto_top_up AS one),
    (SELECT count(*) FROM ledger_entry), (SELECT count(*) FROM credit_payment),
    (SELECT sum(funded_nanos)::bigint FROM credit_budget)
"""


def bring_payments_to_rest(cast: Cast, monitor: psycopg.Connection, rng: random.Random) -> None:
    """Let every payment end, webhooks in any order or never; nothing is at work any more."""
    payers = cast.payers
    payers.line.is_calm = True
    payers.end_acts(rng)
    for (owner, key), wish in payers.top_ups.items():
        _ask_again(cast, owner, key, wish)
    _work_off(cast)
    top_up_where_wanted(monitor, cast)
    salt = rng.random()
    for _ in range(ROUNDS):
        cast.world.clock.advance(HOURS * 3600)
        payers.end_acts(rng)
        _deliver_some(cast, rng, salt)
        _work_off(cast)
    still = StripePayment.objects.filter(status__in=OPEN)
    require(not still.exists(), "In the end every payment has ended", *still)
    check_told(monitor, cast)
    _reconcile(cast)
    pay_unasked(cast, rng)
    before = monitor.execute(STATE).fetchone()
    _look_again(cast, rng)
    after = monitor.execute(STATE).fetchone()
    require(after == before, "Looking again changes nothing", *_changes(before, after))
    _reconcile(cast, is_healed=True)


def _changes(before: Any, after: Any) -> list[tuple[Any, Any]]:
    """Return what is told otherwise, each row or figure before and after."""
    pairs: list[tuple[Any, Any]] = []
    for was, now in zip(before, after, strict=True):
        is_list = isinstance(was, list) and isinstance(now, list)
        pairs += zip(was, now, strict=False) if is_list else [(was, now)]
    return [pair for pair in pairs if pair[0] != pair[1]]


def _ask_again(cast: Cast, owner: str, key: str, wish: TopUp) -> None:
    try:
        ask_top_up(owner, key, wish, cast.now)
    except ServiceError:
        return  # its page would be over by now


def _deliver_some(cast: Cast, rng: random.Random, salt: float) -> None:
    """Deliver webhooks in any order, some of them twice; the lost ones never."""
    fresh = [each for each in cast.payers.stripe.events if each["id"] not in cast.payers.taken]
    chosen = [each for each in fresh if not _is_lost(f"{salt} {each['id']}")]
    chosen += rng.sample(chosen, len(chosen) // 3)
    rng.shuffle(chosen)
    for event in chosen:
        cast.payers.deliver(event, cast.now)


def _is_lost(name: str) -> bool:
    return random.Random(name).random() < LOST_SHARE


def _work_off(cast: Cast) -> None:
    """Let workers and the beat do all there is to do now."""
    for _ in range(TRIES_MAX):
        count = ask_stripe(cast.now, 200) + process_inbox(now=cast.now)
        if count == 0:
            break
    sync_open(now=cast.now)


def _reconcile(cast: Cast, *, is_healed: bool = False) -> None:
    """Hold the whole seed against Stripe: nothing differs, and nothing did before where it was
    healed."""
    start, end = FIRST_DAY - timedelta(days=2), cast.now + timedelta(hours=2)
    found = reconcile(starts_at=start, ends_at=end, now=cast.now, step=timedelta(days=1))
    gaps = [(str(gap), gap.words) for gap in open_gaps(found.mode)]
    require(found.gap_count == len(gaps) == 0, "Stripe and the books have no gap", found, *gaps)
    moved = len(cast.payers.stripe.all("balance_transaction"))
    require(found.movement_count == moved, "Every movement at Stripe is looked at", found, moved)
    require(not (is_healed and found.healed_count), "What is healed stays so", found)


def _look_again(cast: Cast, rng: random.Random) -> None:
    """Look at every object of Stripe once more, in any order, as late webhooks would have it."""
    for event in rng.sample(cast.payers.stripe.events, len(cast.payers.stripe.events)):
        cast.payers.deliver(event, cast.now)
    _work_off(cast)
    named = [
        (look, each["id"])
        for kind, looks in LOOKED_AT.items()
        for each in cast.payers.stripe.all(kind)
        for look in looks
    ]
    for look, thing_id in rng.sample(named, len(named)):
        SYNC[look](thing_id, now=cast.now)

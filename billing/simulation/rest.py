"""The end of a seed: what is at work ends, journals arrive, leases are given back or voided, grants
that must expire do, followers reach the end, days are sealed."""

import itertools
import random
import time
from datetime import date, timedelta

from django.db import connection

from billing.credit.services.grants import expire_grants
from billing.credit.services.leases import void_abandoned_leases
from billing.following.closing import close_days
from billing.following.follow import FOLLOWERS, follow
from billing.following.integrity import check_all
from billing.following.posting import post_through
from billing.following.sealing import seal_days
from billing.metering.ingest import ingest
from billing.metering.models import Day, DeadLetter
from billing.metering.services import book_again
from billing.simulation.deeds import (
    OPERATOR,
    Cast,
    credit_everything,
    hear_receipt,
    make_grant,
    make_payment,
    through_contract,
    write_off_everything,
)
from billing.simulation.gateway import Gateway
from billing.simulation.oracle import require
from billing.simulation.schedule import FAILURE

POLLS_MAX = 3
SECONDS_TILL_VOIDED = 26 * 3600
PAGES_MAX, PAGE_EVENTS = 200, 3
FOLLOWED_WITHIN_SECONDS = 20
ALL_FOLLOWED = """
SELECT coalesce((SELECT min(xid) FROM following_cursor) > greatest(
    (SELECT max(ingested_xid) FROM metering_usage_event),
    (SELECT max(ingested_xid) FROM metering_usage_correction),
    (SELECT max(closed_xid) FROM metering_day)), true)
"""


def come_to_rest(cast: Cast) -> None:
    """Let everything end that has begun, one call after another; one gateway's journal comes a day
    late, when its leases are voided and credit has expired."""
    rng = random.Random(0)  # noqa: S311
    cast.world.clock.advance(600)
    *in_time, late = cast.gateways
    for gateway in cast.gateways:
        gateway.skew = timedelta(0)
        gateway.end_all(rng)
    for gateway in in_time:
        _ship_everything(cast, gateway)
        _give_everything_back(cast, gateway, rng)
    for key, wish in cast.wishes.items():
        make_grant(key, wish, cast.now)
    for key, payment in cast.payments.items():
        make_payment(key, payment, cast.now)
    cast.world.clock.advance(SECONDS_TILL_VOIDED)
    void_abandoned_leases(now=cast.now)
    expire_grants(now=cast.now)
    _ship_everything(cast, late)
    _give_everything_back(cast, late, rng)
    _book_again(cast)
    _finish_books(cast)


def _book_again(cast: Cast) -> None:
    """Book the letters of statements that were made to fail, as an operator would."""
    for letter in DeadLetter.objects.filter(reason__endswith=FAILURE):
        book_again(actor=OPERATOR, letter=letter, now=cast.now)
        cast.dead.discard(letter.event_id)
        cast.acknowledged.add(letter.event_id)


def _finish_books(cast: Cast) -> None:
    close_days(now=cast.now)
    _follow_to_the_end(cast)
    seal_days(now=cast.now)
    unsealed = Day.objects.filter(closed_at__isnull=False, sealed_at__isnull=True)
    require(not unsealed.exists(), "A closed day that was followed is sealed", *unsealed)
    expire_grants(now=cast.now)
    post_through(date.max, now=cast.now)
    expire_grants(now=cast.now)
    credit_everything(cast, cast.world.organization_ids[0])
    for organization_id in cast.world.organization_ids:
        write_off_everything(cast, organization_id)
    broken = [f"{one.sentence}: {one.shown}" for one in check_all() if not one.holds]
    require(not broken, "The house's own checks hold", *broken)


def _follow_to_the_end(cast: Cast) -> None:
    """Follow everything; another database of the server may hold the snapshot back for a while."""
    deadline = time.monotonic() + FOLLOWED_WITHIN_SECONDS
    while not (all(_follow(cast, name) for name in FOLLOWERS) and _is_followed()):
        require(time.monotonic() < deadline, "Followers come to the end")
        time.sleep(0.01)


def _follow(cast: Cast, name: str) -> bool:
    """Follow by small pages, of which there are enough."""
    return follow(name, now=cast.now, pages_max=PAGES_MAX, events=PAGE_EVENTS)


def _is_followed() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(ALL_FOLLOWED)
        return bool(cursor.fetchone()[0])


def _ship_everything(cast: Cast, gateway: Gateway) -> None:
    batch = gateway.whole_journal()
    if batch.events:
        hear_receipt(cast, gateway, batch, ingest(batch, now=cast.now))


def _give_everything_back(cast: Cast, gateway: Gateway, rng: random.Random) -> None:
    """Poll until nothing is left; the session of a crash may hold a budget for a moment yet."""
    deadline = time.monotonic() + FOLLOWED_WITHIN_SECONDS
    for count in itertools.count():
        if count >= POLLS_MAX:
            if not gateway.leases or time.monotonic() >= deadline:
                break
            time.sleep(0.01)
        request = gateway.poll(rng)
        gateway.hear(request, through_contract(request, now=cast.now), rng)
        gateway.end_all(rng)
        _ship_everything(cast, gateway)
    require(not gateway.leases, "A gateway gets rid of its leases", gateway.leases)

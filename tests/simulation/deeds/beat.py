"""What happens by itself: usage is followed, days are closed, posted and sealed, grants expire."""

import random
from datetime import timedelta
from typing import Any

from billing.credit.services.grants import expire_grants
from billing.credit.services.leases import void_abandoned_leases
from billing.following.closing import close_days
from billing.following.follow import FOLLOWERS, follow
from billing.following.posting import post_due
from billing.following.sealing import seal_days
from tests.simulation.cast import Cast, Prepared
from tests.simulation.oracle import require
from tests.simulation.plan import Deed


def _expire(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now
    return Prepared("beat expires grants", lambda: expire_grants(now=now), is_brief=True)


def _void(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now
    words = "beat voids abandoned leases"
    return Prepared(words, lambda: void_abandoned_leases(now=now), is_brief=True)


def _follow(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    who, now, events = rng.choice([*FOLLOWERS]), cast.now, rng.choice((1, 2, 1000))
    return Prepared(
        f"{who} are followed by pages of {events}", lambda: follow(who, now=now, events=events)
    )


def _post(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now
    return Prepared("beat posts closed days", lambda: post_due(now=now))


def _close(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now
    due = (now - timedelta(hours=1)).date() - timedelta(days=1)

    def hear(closed: Any) -> None:
        require(closed == due, "A day is closed an hour after it ended", closed, due)

    return Prepared("beat closes days", lambda: close_days(now=now), hear)


def _seal(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now
    return Prepared("beat seals days", lambda: seal_days(now=now))


DEEDS = {
    "follow": _follow,
    "post": _post,
    "close": _close,
    "seal": _seal,
    "expire": _expire,
    "void": _void,
}

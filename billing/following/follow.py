"""Following: page by page, each with its effect and the cursor's move in one transaction."""

from collections.abc import Callable
from datetime import datetime

from django.db import transaction

from billing.following.cursor import PAGE_EVENTS, Page, move, take_page
from billing.following.last_used import follow_keys
from billing.following.postings import follow_postings
from billing.following.rollups import follow_rollups

PAGES_MAX = 50
"""How many pages one call follows: five million events, a minute's work or so."""

FOLLOWERS: dict[str, Callable[[Page], None]] = {
    "rollups": follow_rollups,
    "postings": follow_postings,
    "keys": follow_keys,
}


def follow_all(*, now: datetime) -> bool:
    """Let every follower read on; return whether all of them came to the end."""
    reached = [follow(name, now=now) for name in FOLLOWERS]
    return all(reached)


def follow(
    name: str, *, now: datetime, pages_max: int = PAGES_MAX, events: int = PAGE_EVENTS
) -> bool:
    """Let a follower read on; return whether it came to the end of what there is.

    False where somebody else follows, or after `pages_max` pages of about `events` events each.
    Raises ForeignLineageError in a restored database.
    """
    for _ in range(pages_max):
        page = step(name, now=now, events=events)
        if page is None:
            return False
        if page.is_last:
            return True
    return False


@transaction.atomic
def step(name: str, *, now: datetime, events: int = PAGE_EVENTS) -> Page | None:
    """Follow one page and return it; None where somebody else follows."""
    page = take_page(name, events=events)
    if page is None:
        return None
    if page.from_xid != page.until_xid:
        FOLLOWERS[name](page)
    move(name, page, now=now)
    return page

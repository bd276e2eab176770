"""Questions about followers, seals and proofs."""

from datetime import UTC, datetime

from billing.following.models import Cursor, Proof
from billing.following.span import open_span
from control.feed.database_identity import current_database_id

LAG_MAX_SECONDS = 60
"""Beyond it a person is told."""


def lag_seconds(now: datetime) -> dict[str, float]:
    """Return how long ago all was written that each follower has followed: one open writer, too,
    lets it grow."""
    rows = Cursor.objects.values_list("name", "followed_at")
    return {name: max((now - at).total_seconds(), 0.0) for name, at in rows}


def late_followers(now: datetime) -> list[str]:
    """Return the followers that lag behind by more than LAG_MAX_SECONDS."""
    return sorted(name for name, lag in lag_seconds(now).items() if lag > LAG_MAX_SECONDS)


def has_stopped() -> bool:
    """Return whether a follower waits for proof that this database, promoted or restored, lacks no
    usage."""
    return Cursor.objects.exclude(lineage__in=("", current_database_id())).exists()


def last_proof() -> Proof | None:
    """Return the latest proving of the books."""
    return Proof.objects.first()


def unsealed_day_count(now: datetime) -> int:
    """Return how many days are over and not sealed, those that nobody has closed included."""
    return max((now.astimezone(UTC).date() - open_span().first).days, 0)

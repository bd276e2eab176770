"""How rate limits stand, in Anthropic's words."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from serving.gateway.errors import Headers
from serving.limits.gcra import LimitStatus

LIMITED = (
    (b"requests", ("requests",)),
    (b"tokens", ("input_tokens", "output_tokens")),
    (b"input-tokens", ("input_tokens",)),
    (b"output-tokens", ("output_tokens",)),
)
"""What headers tell of, and which limits that is."""


def limit_headers(standings: Sequence[LimitStatus], now: datetime) -> Headers:
    """Return how rate limits stand at a moment: of each kind that of which the least is left."""
    headers: list[tuple[bytes, bytes]] = []
    for name, measures in LIMITED:
        found = [one for one in standings if one.check.measure in measures]
        if found:
            tightest = min(found, key=lambda one: one.remaining)
            resets_at = now + timedelta(seconds=tightest.reset_seconds)
            told = resets_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            headers += (
                (b"anthropic-ratelimit-%b-limit" % name, b"%d" % tightest.check.limit),
                (b"anthropic-ratelimit-%b-remaining" % name, b"%d" % tightest.remaining),
                (b"anthropic-ratelimit-%b-reset" % name, told.encode()),
            )
    return headers

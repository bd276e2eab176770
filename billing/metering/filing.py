"""Dead letters: events that could not be booked, kept as they came for a person to look at."""

from collections.abc import Sequence
from datetime import datetime

from billing.metering.batch import Letter
from billing.metering.models import DeadLetter


def file_letters(letters: Sequence[Letter], *, gateway_id: str, now: datetime) -> None:
    """Keep events that could not be booked; the same bytes are kept once."""
    DeadLetter.objects.bulk_create(
        [
            DeadLetter(
                digest=letter.digest,
                event_id=letter.event_id,
                gateway_id=gateway_id,
                reason=letter.reason,
                payload=letter.payload,
                received_at=now,
            )
            for letter in letters
        ],
        ignore_conflicts=True,
    )

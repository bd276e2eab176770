"""Claims messages to deliver: a few of each lane, organization and kind, the idle lanes first.

A slow or failing destination fills only its own slots: at most `PER_LANE` messages of a lane,
`PER_ORGANIZATION` of an organization and `PER_KIND` of a kind are being delivered at once, and a
kind's lanes that failed lately share `IN_TROUBLE` of its slots. Two workers that claim at the same
instant may exceed a bound once.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from control.outbox.models import OutboxMessage

PER_LANE = 2
PER_ORGANIZATION = 4
PER_KIND = 24
IN_TROUBLE = 12
LEASE = timedelta(minutes=2)
"""Longer than any attempt takes: after it, another worker delivers what a dead one had claimed."""

WINDOW = 100
"""The number of messages of a kind that are compared if more are due; the next claim continues
behind their lanes."""

CLAIM = """
/* Claim what is due, fairly. Of a kind with a free place all that is due is weighed; where that is
   more than a choice needs, lane by lane behind the one where the last claim ended. Rows are found
   by an array of ids: joined, they would be looked for among all messages. */
WITH RECURSIVE busy AS MATERIALIZED (
    SELECT lane, coalesce(organization_id, lane) AS owner, kind,
           EXISTS (SELECT FROM outbox_message failed
                   WHERE delivered_at IS NULL AND given_up_at IS NULL AND last_error <> ''
                     AND failed.lane = message.lane) AS in_trouble
    FROM outbox_message AS message
    WHERE delivered_at IS NULL AND given_up_at IS NULL AND claimed_until > %(now)s
), kind (name) AS (
    (SELECT kind FROM outbox_message WHERE delivered_at IS NULL AND given_up_at IS NULL
     ORDER BY kind LIMIT 1)
    UNION ALL
    SELECT (SELECT kind FROM outbox_message
            WHERE delivered_at IS NULL AND given_up_at IS NULL AND kind > kind.name
            ORDER BY kind LIMIT 1)
    FROM kind WHERE kind.name IS NOT NULL
), free_kind AS MATERIALIZED (
    SELECT name, count(*) FILTER (WHERE busy.in_trouble) >= %(in_trouble)s AS is_full_of_trouble
    FROM kind LEFT JOIN busy ON busy.kind = name WHERE name IS NOT NULL
    GROUP BY name HAVING count(busy.kind) < %(per_kind)s
), found AS MATERIALIZED (
    SELECT one.* FROM free_kind CROSS JOIN LATERAL (
        WITH RECURSIVE oldest AS MATERIALIZED (
            SELECT lane FROM outbox_message
            WHERE delivered_at IS NULL AND given_up_at IS NULL
              AND kind = free_kind.name AND due_at <= %(now)s
              AND (claimed_until IS NULL OR claimed_until <= %(now)s)
            ORDER BY due_at LIMIT %(window)s
        ), walk (name, due_at) AS (
            (SELECT lane, due_at FROM outbox_message
             WHERE delivered_at IS NULL AND given_up_at IS NULL
               AND (SELECT count(*) FROM oldest) = %(window)s
               AND kind = free_kind.name
               AND lane > coalesce(%(after)s::jsonb ->> free_kind.name, '')
             ORDER BY lane, due_at LIMIT 1)
            UNION ALL
            SELECT next.* FROM walk CROSS JOIN LATERAL (
                SELECT message.lane, message.due_at FROM outbox_message AS message
                WHERE delivered_at IS NULL AND given_up_at IS NULL
                  AND kind = free_kind.name AND message.lane > walk.name
                ORDER BY message.lane, message.due_at LIMIT 1
            ) next
        ), lane (name) AS (
            SELECT DISTINCT lane FROM oldest WHERE (SELECT count(*) FROM oldest) < %(window)s
            UNION ALL SELECT name FROM walk WHERE due_at <= %(now)s
        )
        SELECT due.*, at_work.count AS at_work, trouble.is_there AS in_trouble
        FROM lane
        CROSS JOIN LATERAL (SELECT count(*) FROM busy WHERE busy.lane = lane.name) at_work
        CROSS JOIN LATERAL (
            SELECT EXISTS (SELECT FROM outbox_message AS failed
                           WHERE delivered_at IS NULL AND given_up_at IS NULL AND last_error <> ''
                             AND failed.lane = lane.name) AS is_there
        ) trouble
        CROSS JOIN LATERAL (
            SELECT id, kind, message.lane, coalesce(organization_id, message.lane) AS owner, due_at
            FROM outbox_message AS message
            WHERE delivered_at IS NULL AND given_up_at IS NULL
              AND kind = free_kind.name AND message.lane = lane.name
              AND due_at <= %(now)s AND (claimed_until IS NULL OR claimed_until <= %(now)s)
            ORDER BY due_at, id LIMIT greatest(%(per_lane)s - at_work.count, 0)
        ) due
        WHERE NOT (trouble.is_there AND free_kind.is_full_of_trouble)
          AND (SELECT count(*) FROM busy WHERE busy.owner = due.owner) < %(per_organization)s
        LIMIT %(window)s
    ) one
), by_lane AS (
    SELECT *, row_number() OVER (PARTITION BY lane ORDER BY due_at, id) + at_work AS of_lane
    FROM found
), by_owner AS (
    SELECT *, row_number() OVER (PARTITION BY owner ORDER BY at_work, due_at, id)
              + (SELECT count(*) FROM busy WHERE busy.owner = by_lane.owner) AS place
    FROM by_lane WHERE of_lane <= %(per_lane)s
), by_trouble AS (
    SELECT id, kind, at_work, due_at, in_trouble,
           row_number() OVER (PARTITION BY kind, in_trouble ORDER BY at_work, due_at, id)
           + (SELECT count(*) FROM busy
              WHERE busy.in_trouble AND busy.kind = by_owner.kind) AS place
    FROM by_owner WHERE place <= %(per_organization)s
), by_kind AS (
    SELECT *, row_number() OVER (PARTITION BY kind ORDER BY in_trouble, at_work, due_at, id)
              + (SELECT count(*) FROM busy WHERE busy.kind = by_trouble.kind) AS of_kind
    FROM by_trouble WHERE NOT in_trouble OR place <= %(in_trouble)s
), chosen AS (
    SELECT id FROM outbox_message
    WHERE id = ANY(ARRAY(
        SELECT id FROM by_kind WHERE of_kind <= %(per_kind)s
        ORDER BY in_trouble, at_work, due_at, id LIMIT %(page)s
    )) AND delivered_at IS NULL AND given_up_at IS NULL
      AND (claimed_until IS NULL OR claimed_until <= %(now)s)
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE outbox_message SET claimed_until = %(until)s, attempts = attempts + 1
WHERE id = ANY(ARRAY(SELECT id FROM chosen))
RETURNING *
"""


@dataclass(frozen=True, slots=True)
class ConcurrencyLimits:
    """The number of messages that may be delivered at once."""

    per_lane: int = PER_LANE
    per_organization: int = PER_ORGANIZATION
    per_kind: int = PER_KIND
    in_trouble: int = IN_TROUBLE


def claim(
    *,
    now: datetime,
    page: int,
    bounds: ConcurrencyLimits | None = None,
    after: Mapping[str, str] | None = None,
) -> list[OutboxMessage]:
    """Claim up to `page` messages that are due at `now`, for `LEASE`; each counts as an attempt.

    In each kind the lanes behind the one in `after` come first, then those from the first lane on;
    within either, the oldest messages first.
    """
    bounds, after = bounds or ConcurrencyLimits(), after or {}
    found = _claim(now, page, bounds, after)
    if after and len(found) < page:
        found += _claim(now, page - len(found), bounds, {})
    return found


def ends_of(messages: Iterable[OutboxMessage]) -> dict[str, str]:
    """Return the last lane of each kind, behind which the next claim continues."""
    ends: dict[str, str] = {}
    for message in messages:
        ends[message.kind] = max(ends.get(message.kind, ""), message.lane)
    return ends


def values_of(
    now: datetime, page: int, bounds: ConcurrencyLimits, after: Mapping[str, str]
) -> dict[str, object]:
    """Return the parameters of `CLAIM`."""
    return {
        "now": now,
        "until": now + LEASE,
        "page": page,
        "after": json.dumps(after),
        "window": WINDOW,
        "per_lane": bounds.per_lane,
        "per_organization": bounds.per_organization,
        "per_kind": bounds.per_kind,
        "in_trouble": bounds.in_trouble,
    }


@transaction.atomic
def _claim(
    now: datetime, page: int, bounds: ConcurrencyLimits, after: Mapping[str, str]
) -> list[OutboxMessage]:
    claimed = OutboxMessage.objects.raw(CLAIM, values_of(now, page, bounds, after))
    # RETURNING gives rows in no particular order.
    return sorted(claimed, key=lambda message: (message.due_at, message.id))

"""The proof of rollups and seals once all is at rest: every sum of every column, from the facts."""

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import psycopg

from tests.simulation.audit import Auditor
from tests.simulation.clock import EPOCH
from tests.simulation.facts import Fact
from tests.simulation.oracle import received_at, require

OUTCOMES = (
    "completed", "client_cancelled", "engine_failed", "timed_out", "gateway_lost",
    "refused_by_engine", "hedged",
)  # fmt: skip
TTFT_SECONDS = (
    0.002, 0.003, 0.005, 0.007, 0.010, 0.015, 0.020, 0.030, 0.050, 0.070, 0.100, 0.150, 0.200,
    0.300, 0.500, 0.700, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 60.0,
)  # fmt: skip
TOKENS = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens")
NANOS = ("input_nanos", "cached_input_nanos", "output_nanos")
SUMS = ("request_count", *(f"{one}_count" for one in OUTCOMES), *TOKENS, *NANOS, "waived_nanos")
ROLLUPS = f"""
SELECT rollup.organization_id, bucket_at, accounted_on, project_id, key_id, model_id, variant_id,
    price_id, endpoint, tier, {", ".join(SUMS)}, ttft_counts
FROM {{}} AS rollup JOIN metering_caller AS caller ON caller.id = caller_id
JOIN metering_supply AS supply ON supply.id = supply_id
"""  # noqa: S608 -- constants of this module
SEALED = ("request_count", *TOKENS[:3], *NANOS, "waived_nanos")
SEALS = f"""
SELECT organization_id, day_id, event_count, {", ".join(SEALED[1:])}, rows_digest, digest
FROM following_seal ORDER BY organization_id, day_id
"""  # noqa: S608 -- constants of this module
SEALED_DAYS = "SELECT day, event_count FROM metering_day WHERE sealed_at IS NOT NULL"

Key = tuple[Any, ...]


def audit_sums(monitor: psycopg.Connection, auditor: Auditor) -> None:
    """Raises BrokenError on the first promise that does not hold."""
    for table, seconds in (("following_minute_rollup", 60), ("following_hour_rollup", 3600)):
        found = {row[:10]: row[10:] for row in monitor.execute(ROLLUPS.format(table))}
        expected = _rolled(auditor, seconds)
        wrong = [key for key in found | expected if found.get(key) != expected.get(key)]
        require(not wrong, "Rollups are the sums of events", table, wrong)
    _check_seals(monitor, auditor)


def counted(auditor: Auditor) -> Iterator[tuple[Fact, int, date, Counter[str]]]:
    """Yield what each fact adds to sums, on which day of the books."""
    for usage, _, _ in auditor.events:
        for sign, day, fact in usage.counted:
            yield fact, sign, day, _parts(fact, sign)


def _parts(fact: Fact, sign: int) -> Counter[str]:
    parts: Counter[str] = Counter({"request_count": sign, f"{fact.outcome}_count": sign})
    for name in TOKENS:
        parts[name] = sign * getattr(fact, name)
    for name in NANOS:
        parts["waived_nanos" if fact.is_waived else name] += sign * getattr(fact, name)
    return parts


def _rolled(auditor: Auditor, seconds: int) -> dict[Key, Key]:
    sums: dict[Key, Counter[str]] = {}
    times: dict[Key, list[int]] = {}
    for fact, sign, day, parts in counted(auditor):
        at = received_at(str(fact.event_id))
        bucket = at - timedelta(seconds=(at - EPOCH).total_seconds() % seconds)
        key = (
            fact.organization_id, bucket, day, fact.project_id, fact.key_id, fact.model_id,
            fact.variant_id, fact.price_id, fact.endpoint, fact.tier,
        )  # fmt: skip
        sums.setdefault(key, Counter()).update(parts)
        counts = times.setdefault(key, [0] * (len(TTFT_SECONDS) + 1))
        if fact.ttft_seconds is not None:
            counts[bisect_right(TTFT_SECONDS, fact.ttft_seconds)] += sign
    return {key: (*(one[name] for name in SUMS), times[key]) for key, one in sums.items()}


def _check_seals(monitor: psycopg.Connection, auditor: Auditor) -> None:
    """What a sealed day came to is what its seals say, each chained to the one before."""
    days: dict[date, int] = dict(monitor.execute(SEALED_DAYS).fetchall())
    require(days.keys() == auditor.closed.keys(), "In the end every closed day is sealed", days)
    expected: dict[Key, Counter[str]] = {}
    for fact, _, day, parts in counted(auditor):
        if day in days:
            expected.setdefault((fact.organization_id, day), Counter()).update(parts)
    events: Counter[date] = Counter()
    last: dict[str, bytes] = {}
    for owner, day, *sums, rows_digest, digest in monitor.execute(SEALS):
        due = expected.pop((owner, day), Counter())
        require(sums == [due[name] for name in SEALED], "A seal says what its day came to", due)
        words = " ".join(map(str, (owner, day, *sums)))
        made = hashlib.sha256(last.get(owner, b"") + words.encode() + rows_digest).digest()
        require(made == digest, "A seal covers the one before", owner, day)
        last[owner], events[day] = digest, events[day] + sums[0]
    require(not expected, "Every day of usage is sealed", expected)
    wrong = {day: count for day, count in days.items() if events[day] != count}
    require(not wrong, "A sealed day knows its events", wrong)

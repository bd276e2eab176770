"""The ways in which one and the same event may be written: JSON leaves more than one."""

import json
import uuid
from typing import Any

import msgspec

from serving.contract.usage import UsageEvent


def written_somehow(event: UsageEvent, chance: int) -> bytes:
    """Return an event as the contract's own encoder writes it, mostly; now and then otherwise."""
    ways = (
        _plainly, _plainly, _plainly, _plainly, _escaped, _in_another_order, _in_capitals, _bare,
        _long_ago,
    )  # fmt: skip
    return ways[chance % len(ways)](event)


def id_meant(written: str) -> str:
    """Return an event's id, however it was written: a letter tells it as its gateway did."""
    try:
        return str(uuid.UUID(written))
    except ValueError:
        return written


def _plainly(event: UsageEvent) -> bytes:
    return msgspec.json.encode(event)


def _escaped(event: UsageEvent) -> bytes:
    r"""Write a letter of an id as \u..: the same id all the same."""
    return _plainly(event).replace(b'"org_', b'"\\u006frg_')


def _in_another_order(event: UsageEvent) -> bytes:
    """Write the id last."""
    fields = _fields(event)
    fields["event_id"] = fields.pop("event_id")
    return json.dumps(fields).encode()


def _in_capitals(event: UsageEvent) -> bytes:
    return _plainly(event).replace(event.event_id.encode(), event.event_id.upper().encode())


def _bare(event: UsageEvent) -> bytes:
    """Write the id without its dashes."""
    bare = event.event_id.replace("-", "")
    return _plainly(event).replace(event.event_id.encode(), bare.encode())


def _long_ago(event: UsageEvent) -> bytes:
    """Write it as before there were versions of the rule, and with the tier's former name."""
    fields = _fields(event) | {"tier": "standard" if event.tier == "default" else event.tier}
    if event.rating == 1:
        del fields["rating"]
    return json.dumps(fields, separators=(",", ":")).encode()


def _fields(event: UsageEvent) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(_plainly(event))
    return fields

"""Credit leases: the right to spend up to so many nano-dollars of one budget, within one of its
periods, until a time.

`POST /internal/v1/leases`. An ask carries its own id, so asking again after a lost answer grants
nothing twice; a return states an absolute figure, so it may be repeated too. Times are of the
gateway's clock: a lease admits for as long as lies between the `at` of its ask, or `admits_from`,
and `admits_until`, measured on the monotonic clock.
"""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from serving.contract import SCHEMA
from serving.contract.units import At, Id, Nanos

Refusal = Literal[
    "credit_balance_exhausted",
    "organization_spend_limit_exceeded",
    "project_spend_limit_exceeded",
    "key_budget_exceeded",
]
ASKS_MAX = 500
RETURNS_MAX = 10_000


class LeaseAsk(msgspec.Struct, frozen=True):
    """`need_nanos` admits the request at hand, `want_nanos` is ten minutes' spend.

    `at` is when the lease should begin to admit, by the gateway's clock: now, or the start of the
    next period, at most 15 minutes ahead. An ask that was `deferred` before is waited for.
    """

    ask_id: Id
    budget_id: Id
    need_nanos: Nanos
    want_nanos: Nanos
    at: At
    deferred: bool = False


class LeaseReturn(msgspec.Struct, frozen=True):
    """The lease will never settle more than `keep_nanos` in all; the rest is free again.

    `keep_nanos` counts what was settled already. A closed lease expects no further event.
    """

    lease_id: Id
    keep_nanos: Nanos
    closed: bool


class LeaseRequest(msgspec.Struct, frozen=True):
    """A gateway's poll, at least once a second while it holds leases; both lists may be empty.

    `lineage` is that of the last reply, empty before the first; `sent_at` is the gateway's clock.
    """

    gateway_id: Id
    sent_at: At
    lineage: str = ""
    asks: Annotated[tuple[LeaseAsk, ...], Meta(max_length=ASKS_MAX)] = ()
    returns: Annotated[tuple[LeaseReturn, ...], Meta(max_length=RETURNS_MAX)] = ()
    schema: int = SCHEMA


class LeaseGrant(msgspec.Struct, frozen=True, tag="granted"):
    """The answer to an ask: money set aside in one period, [`period`, `period_ends_at`).

    A balance has one period that never ends (`period_ends_at` is None).
    """

    ask_id: Id
    budget_id: Id
    lease_id: Id
    granted_nanos: Nanos
    period: At
    admits_from: At
    admits_until: At
    period_ends_at: datetime | None = None


class LeaseDeferral(msgspec.Struct, frozen=True, tag="deferred"):
    """The answer to an ask whose budget was busy: nothing is known, ask again with `deferred`."""

    ask_id: Id
    budget_id: Id


class LeaseDenial(msgspec.Struct, frozen=True, tag="refused"):
    """The answer to an ask when less than `need_nanos` is left, said from a locked row only.

    With `recall_in_progress` other gateways hold idle money that was called back: ask again soon.
    `held_nanos` is what requests under way in other gateways hold of leases that were called back:
    what they do not use is free again.
    `limit_nanos` is the budget's limit, for the customer to read.
    """

    ask_id: Id
    budget_id: Id
    code: Refusal
    available_nanos: Nanos
    recall_in_progress: bool
    limit_nanos: Nanos | None = None
    held_nanos: Nanos = 0


Answer = LeaseGrant | LeaseDeferral | LeaseDenial


class LeaseReply(msgspec.Struct, frozen=True):
    """One answer per ask, the returns that were taken, and the leases billing wants back.

    A `lineage` other than the gateway knew ends all of its leases: the database was restored.
    """

    lineage: str
    answers: tuple[Answer, ...] = ()
    returned: tuple[Id, ...] = ()
    recalls: tuple[Id, ...] = ()
    schema: int = SCHEMA

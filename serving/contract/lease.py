"""Credit leases: the right to spend up to so many nano-dollars of one budget until a time.

`POST /internal/v1/leases`. An ask carries its own id, so asking again after a lost answer grants
nothing twice; a return states an absolute figure, so it may be repeated too.
"""

from typing import Literal

import msgspec

from serving.contract import SCHEMA
from serving.contract.units import At, Id, Nanos

Refusal = Literal[
    "credit_balance_exhausted",
    "organization_spend_limit_exceeded",
    "project_spend_limit_exceeded",
    "key_budget_exceeded",
]


class Ask(msgspec.Struct, frozen=True):
    """`need_nanos` admits the request at hand, `want_nanos` spares the next calls."""

    ask_id: Id
    budget_id: Id
    need_nanos: Nanos
    want_nanos: Nanos


class Return(msgspec.Struct, frozen=True):
    """The lease will never settle more than `keep_nanos` in all; the rest is free again.

    `keep_nanos` counts what was settled already. A closed lease expects no further event.
    """

    lease_id: Id
    keep_nanos: Nanos
    closed: bool


class LeaseRequest(msgspec.Struct, frozen=True):
    """A gateway's poll, at least once a second while it holds leases; both lists may be empty."""

    gateway_id: Id
    asks: tuple[Ask, ...] = ()
    returns: tuple[Return, ...] = ()
    schema: int = SCHEMA


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    """The answer to an ask: money set aside, to be admitted on until `expires_at`."""

    ask_id: Id
    budget_id: Id
    lease_id: Id
    granted_nanos: Nanos
    expires_at: At


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The answer to an ask when less than `need_nanos` is left.

    With `recall_in_progress` other gateways hold idle money that was called back: ask again soon.
    """

    ask_id: Id
    budget_id: Id
    code: Refusal
    recall_in_progress: bool


class LeaseReply(msgspec.Struct, frozen=True):
    """One answer per ask, and the leases of this gateway that billing wants back."""

    answers: tuple[Granted | Refused, ...] = ()
    recalls: tuple[Id, ...] = ()
    schema: int = SCHEMA

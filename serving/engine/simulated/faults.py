"""Scripted faults: how an engine may fail, and how often it is to do so."""

from typing import Literal

import msgspec

from serving.contract.codec import require

Kind = Literal["error", "reset", "die", "error_chunk", "stall", "hang", "freeze", "dead", "refuse"]
"""What goes wrong, per request unless said otherwise:

error        answers `status` at once, as vLLM words errors
reset        closes the connection before the first byte of an answer
die          closes the connection after `after_chunks` tokens
error_chunk  after `after_chunks` tokens sends vLLM's error chunk, of `status`, and `[DONE]`;
             answers `status` if unstreamed
stall        sends nothing more after `after_chunks` tokens, for `seconds`, and holds its slot
hang         reads the request and never answers
freeze       the whole engine makes no more tokens for `seconds`, yet `/health` says 200
dead         the whole engine refuses work for `seconds`: requests get 500, `/health` 503
refuse       the listening socket is closed for `seconds`: connections are refused
"""

OF_ENGINE = frozenset({"freeze", "dead", "refuse"})
"""Faults of the whole engine; they begin when they are set, not with a request."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault that strikes the next `times` requests, then is over; 0 seconds last for ever."""

    kind: Kind
    times: int = 1
    after_chunks: int = 0
    seconds: float = 0.0
    status: int = 500

    def __post_init__(self) -> None:
        require(self.times >= 1, "times", self.times, "at least 1")
        require(self.after_chunks >= 0, "after_chunks", self.after_chunks, "0 or more")
        require(self.seconds >= 0, "seconds", self.seconds, "0 or more")
        require(400 <= self.status <= 599, "status", self.status, "400 to 599")


class FaultScript:
    """The faults still to come, in the order they were set."""

    def __init__(self, faults: list[Fault] | None = None) -> None:
        self._coming: list[Fault] = []
        for fault in faults or []:
            self.add(fault)

    def add(self, fault: Fault) -> None:
        """Let the next `times` requests, after those already spoken for, meet this fault."""
        self._coming += [fault] * fault.times

    def clear(self) -> None:
        """Forget every fault to come."""
        self._coming.clear()

    def next(self) -> Fault | None:
        """Return the fault that the request at hand meets, and take it from the script."""
        return self._coming.pop(0) if self._coming else None


def parse_fault(text: str) -> Fault:
    """Read `kind` or `kind:name=value,...` from the command line. Raises ValueError."""
    kind, _, rest = text.partition(":")
    fields: dict[str, object] = {"kind": kind}
    for pair in filter(None, rest.split(",")):
        name, _, value = pair.partition("=")
        fields[name] = value
    try:
        return msgspec.convert(fields, Fault, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"fault {text!r}: {error}") from error

"""How fast a simulated engine is, and the faults that it has by script."""

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class SimulatorSettings:
    """Speeds are tokens a second; `itl_seconds` of 0 answers at once, without pacing.

    Left to itself an answer has `output_tokens` tokens, give or take half, by the prompt's hash;
    a vector has as many `dimensions`. `kv_cache_tokens` is how many tokens what runs may hold; 0 is
    no bound, and none is declared.
    """

    models: tuple[str, ...] = ("simulated",)
    host: str = "127.0.0.1"
    port: int = 8000
    seed: int = 0
    context_tokens: int = 8_192
    slots: int = 32
    output_tokens: int = 64
    dimensions: int = 64
    itl_seconds: float = 0.0
    prefill_tokens_per_second: float = 0.0
    block_size: int = 32
    cache_blocks: int = 4_096
    kv_cache_tokens: int = 0
    load_seconds: float = 0.0

    def __post_init__(self) -> None:
        require(bool(self.models), "models", self.models, "at least one name")
        require(0 <= self.port <= 65_535, "port", self.port, "0 to 65535")
        for name in ("context_tokens", "slots", "output_tokens", "dimensions", "block_size"):
            value = getattr(self, name)
            require(value > 0, name, value, "at least 1")
        for name in (
            *("itl_seconds", "prefill_tokens_per_second", "load_seconds"),
            *("cache_blocks", "kv_cache_tokens"),
        ):
            value = getattr(self, name)
            require(value >= 0, name, value, "0 or more")

    @property
    def is_paced(self) -> bool:
        """Whether tokens take time."""
        return self.itl_seconds > 0 or self.prefill_tokens_per_second > 0

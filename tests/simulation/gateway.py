"""A model of a gateway that knows billing by the contract alone.

It holds each request's worst case on leases of every budget in the caller's chain, charges the real
cost, journals the event, ships it until it is acknowledged, and gives leases back. `charged + held`
never exceeds what a lease was granted. It dies, comes back, repeats itself and lives by a clock of
its own.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from serving.contract.budget import period_end, period_start
from serving.contract.ids import uuid7
from serving.contract.lease import (
    LeaseAsk,
    LeaseDenial,
    LeaseGrant,
    LeaseReply,
    LeaseRequest,
    LeaseReturn,
)
from serving.contract.price import RATING, band_of, charge, worst_case_nanos
from serving.contract.usage import BILLABLE, LeaseCharge, Outcome, UsageBatch, UsageEvent
from tests.simulation.clock import milliseconds
from tests.simulation.oracle import require
from tests.simulation.world import Caller, Tariff, World
from tests.simulation.writing import written_somehow

AHEAD = timedelta(minutes=15)
OUTCOMES: tuple[Outcome, ...] = (
    *("completed",) * 8, "client_cancelled", "engine_failed", "timed_out",
)  # fmt: skip
CLIENT_IDS = (
    None, "plain", "", "tab\there", "back\\slash \\N", "a line\nand a\rreturn", "nul\0in it", "ünï",
)  # fmt: skip
"""What clients call their requests: labels and nothing else."""
TTFT_SECONDS = (2**-11, 2**-6, 0.0625, 0.25, 0.5, 1.0, 3.0, 20.0, 30.0, 60.0, 64.0)
"""Below, between, on and beyond the bounds of the histogram, exact in any float."""
BATCH_MAX = 8
BOUNDARY_SHARE = 0.3
DYING_MAX = 6
"""Requests that come in last."""
FAVOUR = 0.7
"""How often a request is of the same caller as the ones before it."""


@dataclass(slots=True)
class Held:
    """A lease as its gateway sees it."""

    lease_id: str
    budget_id: str
    granted_nanos: int
    admits_from: datetime
    admits_until: datetime
    period: datetime
    charged_nanos: int = 0
    held_nanos: int = 0
    is_stopped: bool = False
    unacknowledged: set[str] = field(default_factory=set)

    @property
    def spendable_nanos(self) -> int:
        """What it may still hold."""
        return self.granted_nanos - self.charged_nanos - self.held_nanos

    @property
    def is_done(self) -> bool:
        """Whether nothing more will be settled by it."""
        return self.held_nanos == 0 and not self.unacknowledged


@dataclass(frozen=True, slots=True)
class Running:
    """A request at an engine, with what it holds of each lease."""

    event_id: str
    caller: Caller
    schedule: tuple[Tariff, ...]
    price_id: str | None
    received_at: datetime
    input_tokens_max: int
    output_tokens_max: int
    holds: tuple[tuple[str, str, int], ...]
    """Budget, lease and nanos."""


@dataclass(slots=True)
class Journal:
    """What is durable: every payload ever written by event id, and those not acknowledged yet."""

    written: dict[str, list[UsageEvent]] = field(default_factory=dict)
    payloads: dict[bytes, UsageEvent] = field(default_factory=dict)
    poison: dict[bytes, str] = field(default_factory=dict)
    """What can never be booked, with the id that its dead letter has."""
    miscounted: set[str] = field(default_factory=set)
    """Organizations whose gateway charged otherwise than by the rule."""
    unacknowledged: list[bytes] = field(default_factory=list)

    def write(self, event: UsageEvent, payload: bytes | None = None) -> bytes:
        """Make an event durable, in the contract's writing or another one of the same."""
        payload = payload or msgspec.json.encode(event)
        self.written.setdefault(event.event_id, []).append(event)
        self.payloads[payload] = event
        self.unacknowledged.append(payload)
        return payload

    def write_poison(self, payload: bytes, letter_id: str) -> None:
        """Make something durable that is no event."""
        self.poison[payload] = letter_id
        self.unacknowledged.append(payload)


class Gateway:
    """One gateway; it outlives its own deaths by its journal alone."""

    def __init__(
        self, gateway_id: str, world: World, skew: timedelta, rating: int = RATING
    ) -> None:
        self.gateway_id = gateway_id
        self.world = world
        self.skew = skew
        self.rating = rating
        self.journal = Journal()
        self.leases: dict[str, Held] = {}
        self.asks: dict[tuple[str, datetime], LeaseAsk] = {}
        self.running: list[Running] = []
        self.lineage = ""
        self._count = 0

    @property
    def now(self) -> datetime:
        """The moment by this gateway's clock."""
        return self.world.clock.now + self.skew

    @property
    def is_ahead(self) -> bool:
        """Whether it lives so far in the future that nothing it says is taken."""
        return self.skew > timedelta(minutes=5)

    def serve(self, rng: random.Random, wishes: int) -> None:
        """Take requests in and end some of those at work."""
        favourite = rng.choice(self.world.callers)
        for _ in range(wishes):
            self._take_in(favourite if rng.random() < FAVOUR else None, rng)
        for request in list(self.running):
            if rng.random() < 0.6:
                self._end(request, rng)

    def poll(self, rng: random.Random) -> LeaseRequest:
        """Return the poll that is due: asks that were not answered yet, and what is given back."""
        for lease in self.leases.values():
            is_over = lease.admits_until <= self.now
            if is_over or (lease.is_done and rng.random() < 0.15):
                lease.is_stopped = True
        returns = [
            LeaseReturn(lease.lease_id, lease.charged_nanos + lease.held_nanos, lease.is_done)
            for lease in self.leases.values()
            if lease.is_stopped
        ]
        rng.shuffle(returns)
        asks = tuple(self.asks.values())
        return LeaseRequest(self.gateway_id, self.now, self.lineage, asks, tuple(returns))

    def hear(self, request: LeaseRequest, reply: LeaseReply, rng: random.Random) -> None:
        """Take in the answer to a poll, and go on serving."""
        self.lineage = reply.lineage
        open_asks = {ask.ask_id: key for key, ask in self.asks.items()}
        for answer in reply.answers:
            key = open_asks.get(answer.ask_id)
            if isinstance(answer, LeaseGrant):
                self._take_lease(answer)
            if key is None:
                continue
            if isinstance(answer, LeaseDenial):
                self._check_refusal(self.asks[key], answer, rng)
            elif isinstance(answer, LeaseGrant):
                del self.asks[key]
            else:
                self.asks[key] = msgspec.structs.replace(self.asks[key], deferred=True)
        closed = {one.lease_id for one in request.returns if one.closed}
        for lease_id in closed & set(reply.returned):
            self.leases.pop(lease_id, None)
        for lease_id in reply.recalls:
            if lease_id in self.leases:
                self.leases[lease_id].is_stopped = True
        self.serve(rng, len(request.asks))

    def batch(self, rng: random.Random) -> UsageBatch:
        """Return a batch of the journal: a part, permuted, with repeats, and with old ones."""
        journal = self.journal
        size = min(rng.randint(1, BATCH_MAX), len(journal.unacknowledged))
        payloads = rng.sample(journal.unacknowledged, size)
        if payloads and rng.random() < 0.2:
            payloads.append(rng.choice(payloads))
        if journal.payloads and rng.random() < 0.2:
            payloads.append(rng.choice(list(journal.payloads)))
        return self._batch_of(payloads)

    def whole_journal(self) -> UsageBatch:
        """Return everything that is not acknowledged."""
        return self._batch_of(self.journal.unacknowledged)

    def acknowledge(self, batch: UsageBatch) -> None:
        """Forget what billing has committed."""
        gone = {bytes(raw) for raw in batch.events}
        self.journal.unacknowledged = [
            payload for payload in self.journal.unacknowledged if payload not in gone
        ]
        known = self.journal.payloads
        left = {known[one].event_id for one in self.journal.unacknowledged if one in known}
        for lease in self.leases.values():
            lease.unacknowledged &= left

    def repeat_otherwise(self, rng: random.Random) -> None:
        """Write an event down again with other content: somebody's bug, which pays nobody twice."""
        told = [versions[0] for versions in self.journal.written.values() if len(versions) == 1]
        if events := [event for event in told if event.output_tokens]:
            event = rng.choice(events)
            changed = msgspec.structs.replace(event, output_tokens=event.output_tokens - 1)
            self.journal.write(changed)

    def die(self, rng: random.Random, *, journal_is_lost: bool) -> None:
        """End at once: leases are forgotten, requests at work become `gateway_lost`, some of which
        turn out to have ended after all."""
        for _ in range(rng.randint(0, DYING_MAX)):
            self._take_in(None, rng)
        for request in self.running:
            self._write(request, "gateway_lost", 0, 0, 0)
            if rng.random() < 0.5:
                self._write(request, *self._ending(request, rng))
        rng.shuffle(self.journal.unacknowledged)
        if journal_is_lost:
            self.journal.unacknowledged.clear()
        self.running.clear()
        self.leases.clear()
        self.asks.clear()
        self.lineage = ""

    def end_all(self, rng: random.Random) -> None:
        """End every request at work and stop every lease."""
        for request in list(self.running):
            self._end(request, rng)
        self.asks.clear()
        for lease in self.leases.values():
            lease.is_stopped = True

    def _check_refusal(self, ask: LeaseAsk, answer: LeaseDenial, rng: random.Random) -> None:
        """Nobody is refused what is there; what is there to the last nano may be asked for."""
        left = answer.available_nanos
        require(left < ask.need_nanos, "What is left is granted", ask, answer)
        key = (ask.budget_id, period_start(ask.budget_id, ask.at))
        del self.asks[key]
        if left and rng.random() < BOUNDARY_SHARE:
            self._count += 1
            name = f"{self.gateway_id}-{self._count}"
            self.asks[key] = LeaseAsk(name, ask.budget_id, left, left, ask.at)

    def _take_lease(self, granted: LeaseGrant) -> None:
        if granted.lease_id not in self.leases:
            self.leases[granted.lease_id] = Held(
                granted.lease_id, granted.budget_id, granted.granted_nanos,
                granted.admits_from, granted.admits_until, granted.period,
            )  # fmt: skip

    def _take_in(self, favourite: Caller | None, rng: random.Random) -> None:
        caller = favourite or rng.choice(self.world.callers)
        at = self.now - timedelta(minutes=30) if rng.random() < 0.1 else self.now
        schedule = tuple(self.world.schedule(at))
        price_id = rng.choice(("price_20", "price_unknown")) if rng.random() < 0.04 else None
        longest = rng.choice((60, 60, 300, 2000))
        input_max, output_max = rng.randrange(1, longest), rng.randrange(longest // 4)
        worst = worst_case_nanos(
            schedule, input_tokens_max=input_max, output_tokens_max=output_max, choices=1
        )
        holds = self._hold(caller, worst, rng)
        if holds is None:
            return
        self.running.append(
            Running(
                self.new_event_id(self.now), caller, schedule, price_id, self.now, input_max,
                output_max, tuple(holds),
            )
        )  # fmt: skip

    def new_event_id(self, at: datetime) -> str:
        """Return the id of a request received at a moment, to the millisecond."""
        self._count += 1
        bits = int.from_bytes(f"{self.gateway_id}{self._count:06d}".encode()[-8:], "big")
        return uuid7(at_ms=milliseconds(at), random_bits=bits)

    def _hold(
        self, caller: Caller, worst: int, rng: random.Random
    ) -> list[tuple[str, str, int]] | None:
        """Set the worst case aside on every budget of the chain, or ask for what lacks."""
        holds: list[tuple[str, str, int]] = []
        is_short = False
        for budget_id in self.world.budgets_of(caller):
            found = list(self._parts(budget_id, worst))
            if sum(part for _, part in found) < worst:
                self._ask(budget_id, worst, rng)
                is_short = True
            holds += [(budget_id, lease.lease_id, part) for lease, part in found]
        if is_short:
            return None
        for _, lease_id, part in holds:
            self.leases[lease_id].held_nanos += part
        return holds

    def _parts(self, budget_id: str, nanos: int) -> Iterable[tuple[Held, int]]:
        period = period_start(budget_id, self.now)
        for lease in self.leases.values():
            admits = lease.admits_from <= self.now < lease.admits_until and lease.period == period
            if lease.budget_id == budget_id and admits and not lease.is_stopped:
                part = min(lease.spendable_nanos, nanos)
                if part > 0:
                    nanos -= part
                    yield lease, part

    def _ask(self, budget_id: str, need: int, rng: random.Random) -> None:
        want = need * rng.choice((1, 1, 3, 20))
        at = self.now
        end = period_end(budget_id, period_start(budget_id, at))
        if end is not None and end - at <= AHEAD and rng.random() < 0.5:
            at = end
        elif rng.random() < 0.05:
            at = rng.choice((at + timedelta(hours=2), at - timedelta(days=2)))
        key = (budget_id, period_start(budget_id, at))
        if key not in self.asks:
            self._count += 1
            self.asks[key] = LeaseAsk(f"{self.gateway_id}-{self._count}", budget_id, need, want, at)

    def _end(self, request: Running, rng: random.Random) -> None:
        self.running.remove(request)
        ending = self._ending(request, rng)
        event = self._write(request, *ending)
        parts = {(one.budget_id, one.lease_id): one.charged_nanos for one in event.charges}
        for budget_id, lease_id, held in request.holds:
            if lease := self.leases.get(lease_id):
                lease.held_nanos -= held
                lease.charged_nanos += parts.get((budget_id, lease_id), 0)
                lease.unacknowledged.add(request.event_id)

    def _ending(self, request: Running, rng: random.Random) -> tuple[Outcome, int, int, int]:
        used = rng.randint(1, request.input_tokens_max)
        outcome = rng.choice(OUTCOMES)
        return outcome, used, rng.randint(0, used), rng.randint(0, request.output_tokens_max)

    def _write(
        self, request: Running, outcome: Outcome, used: int, cached: int, output: int
    ) -> UsageEvent:
        band = band_of(request.schedule, used)
        due = charge(
            band, input_tokens=used, cached_input_tokens=cached, output_tokens=output,
            rating=self.rating,
        )  # fmt: skip
        detail = used + cached + output
        event = UsageEvent(
            event_id=request.event_id,
            gateway_id=self.gateway_id,
            organization_id=request.caller.organization_id,
            project_id=request.caller.project_id,
            key_id=request.caller.key_id,
            model_id=band.model_id,
            variant_id=band.variant_id,
            deployment_id="dep_1",
            replica_id=("rep_1", "rep_2", None)[detail % 3],
            price_id=request.price_id or band.price_id,
            endpoint=("chat.completions", "responses")[detail % 2],
            tier="default",
            outcome=outcome,
            received_at=request.received_at,
            charges=_split(request.holds, due.total_nanos if outcome in BILLABLE else 0),
            input_tokens=used,
            cached_input_tokens=cached,
            output_tokens=output,
            reasoning_tokens=output // 3,
            streamed=detail % 2 == 1,
            queue_seconds=0.125,
            ttft_seconds=TTFT_SECONDS[detail % len(TTFT_SECONDS)] if outcome in BILLABLE else None,
            total_seconds=0.5,
            client_request_id=CLIENT_IDS[detail % len(CLIENT_IDS)],
            rating=self.rating,
        )
        self.journal.write(event, written_somehow(event, detail))
        return event

    def _batch_of(self, payloads: Iterable[bytes]) -> UsageBatch:
        events = tuple(msgspec.Raw(payload) for payload in payloads)
        return UsageBatch(self.gateway_id, events, sent_at=self.now, lineage=self.lineage)


def _split(holds: Iterable[tuple[str, str, int]], nanos: int) -> tuple[LeaseCharge, ...]:
    """Divide a charge over the leases it was held on, budget by budget."""
    left: dict[str, int] = {}
    charges = []
    for budget_id, lease_id, held in holds:
        part = min(held, left.setdefault(budget_id, nanos))
        left[budget_id] -= part
        charges.append(LeaseCharge(budget_id, lease_id, part))
    return tuple(charges)

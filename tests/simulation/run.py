"""A seed, run from an empty database to rest: its plan, then the end of all that is at work, then
the proof."""

import random
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import xxhash
from django.db import DataError, OperationalError

from control.feed import database_identity
from serving.contract.lease import LeaseDeferral, LeaseReply, LeaseRequest
from tests.simulation.afterlife import live_on
from tests.simulation.audit import Auditor, Journals
from tests.simulation.audit_automatic import audit_automatic
from tests.simulation.audit_books import audit_books
from tests.simulation.audit_invoices import audit_invoices
from tests.simulation.audit_notes import audit_notes
from tests.simulation.audit_payments import audit_payments
from tests.simulation.audit_sums import audit_sums
from tests.simulation.cast import Cast, Prepared, make_cast
from tests.simulation.clock import CHANCE, ruled_by
from tests.simulation.database import Scratch
from tests.simulation.deeds.table import prepare
from tests.simulation.documents import read_documents
from tests.simulation.figures import check_figures, check_limits
from tests.simulation.line import connected
from tests.simulation.locks import check_locks, check_wait
from tests.simulation.moments import month_end, next_moment
from tests.simulation.oracle import BrokenError, is_fine, require
from tests.simulation.parties import make_parties
from tests.simulation.paying import is_paying, make_paying_plan
from tests.simulation.plan import Deed, Plan, Step, make_plan
from tests.simulation.readings import check_readings
from tests.simulation.rest import come_to_rest
from tests.simulation.schedule import FAILURES, Call, Outcome, Scheduler
from tests.simulation.watch import Watch
from tests.simulation.world import SCALES, World, make_world

LIMITS = """
SELECT id, spend_limit_nanos FROM organizations_organization
UNION ALL SELECT id, spend_limit_nanos FROM organizations_project
UNION ALL SELECT id, spend_limit_nanos FROM api_keys_api_key
"""
FINE_LIMITS = "SELECT budget_id FROM limits_spending_limit WHERE is_hard"

PAYING_SCALES = SCALES[-1:]
"""Who pays by card pays dollars."""
MADE = (DataError, OperationalError)
"""What a statement that is made to fail raises."""
WAITED_FOR_MAX = 5
"""Of the asks of a poll that were deferred before, so many are waited for."""
NEVER_WAITS = ("credit_grant_leases", "credit_take_back", "following_cursor WHERE name")
"""Statements that skip what somebody else has locked."""


@dataclass(slots=True)
class Report:
    """What came of a seed: the story of its run, and what is wrong, if something is."""

    seed: int
    plan: Plan
    lines: list[str] = field(default_factory=list)
    failure: str | None = None


@dataclass(slots=True)
class Simulator:
    """Runs seeds in a scratch database. With `verbose`, statements are part of the story."""

    scratch: Scratch
    verbose: bool = False
    _report: Report = field(default_factory=lambda: Report(0, ()))
    _scheduler: Scheduler | None = None

    def run(self, seed: int, plan: Plan | None = None) -> Report:
        """Run a seed, by its own plan or a part of it."""
        self._report = report = Report(seed, _whole_plan(seed) if plan is None else plan)
        self.scratch.empty()
        forget_everything()
        CHANCE.reseed(seed)
        try:
            self._live(report)
        except BrokenError as error:
            self._break(str(error))
        except Exception as error:
            self._break(f"Nothing fails: {type(error).__name__}: {error}")
        return report

    def _break(self, words: str) -> None:
        self.close()
        self._report.failure = words
        self._report.lines.append(f"BROKEN {words}")

    def _live(self, report: Report) -> None:
        rng = random.Random(f"world {report.seed}")
        world = make_world(rng, scales=PAYING_SCALES if is_paying(report.seed) else SCALES)
        make_parties(world, rng)
        cast = make_cast(world, rng)
        watch = Watch(self.scratch.monitor, clock=world.clock, released=cast.released)
        with ruled_by(world.clock), connected(cast.payers.line):
            # Read once here: else one seed's first call would have a query more than another's.
            database_identity.database_id()
            scheduler = self._ready(watch)
            for number, step in enumerate(report.plan):
                self._do(cast, scheduler, watch, number, step)
            watch.look()
            self._say("everything comes to rest")
            come_to_rest(cast, self.scratch.monitor, report.seed)
            if is_paying(report.seed):
                audit_automatic(self.scratch.monitor, cast)
                audit_payments(self.scratch.monitor, cast)
            watch.look()
            check_figures(self.scratch.monitor, world)
            auditor = self._audit(cast)
            live_on(cast, self.scratch.monitor)
        documents = read_documents(self.scratch.monitor)
        charged = sum(auditor.charges_of(one) for one in world.organization_ids)
        report.lines.append(
            f"clean: {len(auditor.events)} events, {len(watch.leases)} leases, {charged} nanos,"
            f" {len(documents.invoices)} invoices, {len(documents.notes)} notes,"
            f" {len(cast.payers.stripe.succeeded())} charges"
        )

    def _audit(self, cast: Cast) -> Auditor:
        auditor = Auditor(self.scratch.monitor, cast.world, _journals(cast))
        auditor.audit()
        audit_books(self.scratch.monitor, cast, auditor)
        audit_sums(self.scratch.monitor, auditor)
        audit_invoices(self.scratch.monitor, cast, auditor)
        audit_notes(self.scratch.monitor, cast)
        check_readings(cast.world, auditor)
        return auditor

    def _do(self, cast: Cast, scheduler: Scheduler, watch: Watch, number: int, step: Step) -> None:
        if step.turns:
            cast.world.clock.now = month_end(cast)
        elif step.lands:
            cast.world.clock.now = next_moment(cast)
        else:
            cast.world.clock.advance(step.seconds)
        self._say(f"{number}. {cast.now:%d %b %H:%M:%S}")
        calls: list[tuple[Deed, Prepared, Call]] = []
        for place, deed in enumerate(step.deeds):
            name = f"{number}.{place}"
            prepared = prepare(cast, deed, f"{deed.salt}")
            if prepared is None:
                self._say(f"   {name} {deed}")
                continue
            self._say(f"   {name} {prepared.words}{_fate(deed)}")
            failure = FAILURES[deed.salt % len(FAILURES)]
            call = Call(name, prepared.work, deed.salt, deed.crash_at, deed.fails_at, failure)
            calls.append((deed, prepared, call))
        watch.begin()
        outcomes = scheduler.run([call for *_, call in calls], random.Random(step.salt))
        for made, outcome in zip(calls, outcomes, strict=True):
            self._hear(made, outcome, watch, cast.now)
        self._learn_limits(cast.world)
        check_limits(self.scratch.monitor, cast.now)
        check_figures(self.scratch.monitor, cast.world, number)

    def _hear(
        self, made: tuple[Deed, Prepared, Call], outcome: Outcome, watch: Watch, now: datetime
    ) -> None:
        deed, prepared, call = made
        if outcome.was_deadlocked:
            raise BrokenError(f"No call is deadlocked: {call.name} {prepared.words}")
        waited = [one for one in outcome.waited_for if any(name in one for name in NEVER_WAITS)]
        require(not waited, "Nobody waits who may skip", call.name, prepared.words, *waited)
        if prepared.request is not None and _is_new(prepared.request):
            early = [one for one in outcome.waited_for if "credit_lock" in one]
            require(not early, "Who asks for the first time is put off", prepared.words, *early)
        if prepared.is_brief:
            long = outcome.waited_long
            require(not long, "Who must not wait for ever says how long", prepared.words, *long)
        if outcome.has_crashed:
            self._say(f"   {call.name} crashed")
        elif outcome.error is not None:
            is_made = outcome.has_failed and isinstance(outcome.error, MADE)
            if not (is_made or isinstance(outcome.error, prepared.allowed)):
                error = outcome.error
                raise BrokenError(
                    f"No call fails: {call.name} {prepared.words}: {type(error).__name__}: {error}"
                ) from error
            self._say(f"   {call.name} refused: {outcome.error}")
        elif prepared.must_fail:
            raise BrokenError(f"What contradicts itself is refused: {prepared.words}")
        elif not deed.is_unheard:
            if prepared.request is not None:
                watch.check_reply(prepared.request, outcome.value, began_at=now)
                may_defer = outcome.has_given_up or outcome.has_failed
                require(may_defer or not _deferred_again(prepared.request, outcome.value),
                        "Who was deferred is waited for", prepared.words)  # fmt: skip
            prepared.hear(outcome.value)

    def _learn_limits(self, world: World) -> None:
        """Gateways hear of limits by the change feed, which is not what is simulated here."""
        world.limits = dict(self.scratch.monitor.execute(LIMITS).fetchall())
        world.fine_limits = {row[0] for row in self.scratch.monitor.execute(FINE_LIMITS)}

    def _ready(self, watch: Watch) -> Scheduler:
        """Keep threads and sessions from seed to seed; a failure leaves them amid their calls."""
        note = self._note if self.verbose else lambda _: None
        if self._scheduler is None:
            self._scheduler = Scheduler(self.scratch.monitor)
        self._scheduler.look, self._scheduler.note = watch.look, note
        self._scheduler.check = partial(self._check, watch)
        self._scheduler.check_wait = partial(check_wait, self.scratch.monitor)
        return self._scheduler

    def _check(self, watch: Watch, pid: int, statement: str, params: Any) -> None:
        check_locks(self.scratch.monitor, pid, statement, params)
        watch.hear(statement, params)

    def close(self) -> None:
        """End all threads and their sessions."""
        if self._scheduler is not None:
            self._scheduler.close()
            self._scheduler = None

    def _note(self, point: str) -> None:
        self._say(f"        {point[:160]}")

    def _say(self, line: str) -> None:
        self._report.lines.append(line)


def _whole_plan(seed: int) -> Plan:
    plan = make_plan(seed)
    return make_paying_plan(seed, plan) if is_paying(seed) else plan


def forget_everything() -> None:
    """Let the services forget what they remember of a database, as they do for another one."""
    for listener in database_identity._known.listeners:
        listener()


def _fate(deed: Deed) -> str:
    if deed.crash_at is not None:
        return f" (dies at point {deed.crash_at})"
    if deed.fails_at is not None:
        return f" (a statement fails from point {deed.fails_at} on)"
    return " (answer lost)" if deed.is_unheard else ""


def _is_new(request: LeaseRequest) -> bool:
    """Tell whether nobody was put off before, nor asks by the week or the day: whose row there may
    be none, which takes the balance to make."""
    return not any(ask.deferred or is_fine(ask.budget_id) for ask in request.asks)


def _deferred_again(request: LeaseRequest, reply: LeaseReply) -> bool:
    """Tell whether somebody was put off who had been before, though few enough to be waited for."""
    before = {ask.ask_id for ask in request.asks if ask.deferred}
    again = [
        one for one in reply.answers if isinstance(one, LeaseDeferral) and one.ask_id in before
    ]
    return len(before) <= WAITED_FOR_MAX and bool(again)


def _journals(cast: Cast) -> Journals:
    written: dict[str, Any] = {}
    poison: dict[bytes, str] = {}
    digests: dict[str, set[int]] = {}
    for gateway in cast.gateways:
        journal = gateway.journal
        written |= journal.written
        poison |= journal.poison
        for payload, event in journal.payloads.items():
            made = xxhash.xxh3_64_intdigest(payload) - 2**63
            digests.setdefault(event.event_id, set()).add(made)
    miscounted = set().union(*(one.journal.miscounted for one in cast.gateways))
    return Journals(
        written, cast.acknowledged, cast.acknowledged_real, cast.dead, cast.contents, poison,
        cast.poisoned, miscounted, digests,
    )  # fmt: skip

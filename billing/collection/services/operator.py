"""What an operator decides about one organization, with a reason: each writes the log and the
audit, and goes on with the schedule from there."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from typing import Any

from django.db import transaction

from billing.collection import selectors
from billing.collection.charging import charge
from billing.collection.models import DAYS_MAX, REASON_MAX, ScheduledStep, Settings, State, StepKind
from billing.collection.schedule import Planned
from billing.collection.services import measures, telling
from billing.collection.services.log import log_step
from billing.collection.services.look import Look
from billing.collection.services.looking import held
from billing.collection.services.steps import count_as_taken, end_pause, plan, save
from billing.credit.selectors import owed_nanos
from billing.credit.services.adjustments import write_off as give_up_debt
from control.audit import services as audit
from control.db.models import new_id
from control.errors import Conflict, InvalidValue
from control.permissions import Actor, Permission, require_operator

PAUSE_DAYS_MAX = 365
MIN_CENTS_MAX = 2**31 - 1
DAY = timedelta(days=1)


def pause(
    *, organization_id: str, actor: Actor, reason: str, now: datetime, until: date | None = None
) -> None:
    """Take no step until a day has passed, such as one that payment was promised by, or until
    resumed. Raises as all of these: NotPermitted, ObjectNotFound, InvalidValue, and Conflict
    without a case.
    """
    if until is not None:
        _check_until(until, now)
    with _decided(organization_id, actor, reason, "paused", now) as look:
        case = look.case
        case.paused_at, case.paused_until, case.pause_reason = now, until, reason
        case.waits_for = "pause"


def resume(*, organization_id: str, actor: Actor, reason: str, now: datetime) -> None:
    """End a pause: the next step follows tomorrow at the earliest."""
    with _decided(organization_id, actor, reason, "resumed", now) as look:
        if look.case.paused_at is None:
            raise Conflict("It is not paused.")
        end_pause(look.case, now)
        look.case.waits_for = ""


def skip(*, organization_id: str, actor: Actor, reason: str, now: datetime) -> None:
    """Leave the next step out; the one after keeps its distance."""
    with _decided(organization_id, actor, reason, "skipped", now) as look:
        planned = plan(look)
        if planned is None:
            raise Conflict("No steps are left.")
        count_as_taken(look, Planned(planned.kind, planned.days, planned.on))
        look.case.last_on = max(planned.on, now.date())


def retry_now(*, organization_id: str, actor: Actor, reason: str, now: datetime) -> None:
    """Charge what is due with the saved method, or remind of it. Raises Conflict while a payment
    is on its way."""
    with _decided(organization_id, actor, reason, "retried", now) as look:
        _require_still(look)
        name = new_id("retry")
        asked = charge(look.owed, now=now)
        if asked:
            look.case.waits_for = "payment"
        else:
            plan(look)
            telling.reminded(look, name)


def limit_now(*, organization_id: str, actor: Actor, reason: str, now: datetime) -> None:
    """Limit the service at once, ahead of the schedule."""
    with _decided(organization_id, actor, reason, "limited", now) as look:
        _require_unpaid(look)
        if look.case.limited_at or look.case.suspended_at:
            raise Conflict("It is already limited or suspended.")
        look.case.state = State.LIMITED
        _step_over(look, StepKind.LIMIT)
        telling.limited(look, new_id("limit"))
        measures.limit(look.case, now=now)


def suspend_now(*, organization_id: str, actor: Actor, reason: str, now: datetime) -> None:
    """Suspend at once, ahead of the schedule."""
    with _decided(organization_id, actor, reason, "suspended", now) as look:
        _require_unpaid(look)
        if not look.organization.is_active:
            raise Conflict("It is already suspended.")
        look.case.state = State.SUSPENDED
        _step_over(look, StepKind.SUSPEND)
        telling.suspended(look, new_id("suspend"))
        measures.suspend(look.case, look.organization, actor=actor, reason=reason, now=now)


def reinstate(
    *, organization_id: str, actor: Actor, reason: str, now: datetime, until: date | None = None
) -> None:
    """Serve it as before although something is overdue, and pause until a day, by default a week
    from now; measures then follow anew, with the schedule's notice."""
    until = until or now.date() + 7 * DAY
    _check_until(until, now)
    with _decided(organization_id, actor, reason, "reinstated", now, is_open=False) as look:
        case = look.case
        if not case.has_measures:
            raise Conflict("Collection has neither limited nor suspended it.")
        _go_back_to_grace(look)
        if case.is_open:
            case.paused_at, case.paused_until, case.pause_reason = now, until, reason
            case.waits_for = "pause"
        telling.reinstated(look, new_id("reinstate"))
        measures.lift(case, look.organization, actor=actor, reason=reason, now=now)


def write_off(*, organization_id: str, actor: Actor, reason: str, now: datetime) -> None:
    """Give up what is overdue. A service that is limited or suspended stays so, until an operator
    reinstates it."""
    with _decided(organization_id, actor, reason, "written_off", now) as look:
        _require_still(look)
        case = look.case
        nanos = sum(one.open_nanos for one in look.owed.due)
        case.state, case.opened_at, case.waits_for = State.WRITTEN_OFF, None, ""
        case.paused_at, case.paused_until, case.pause_reason = None, None, ""
        case.save()
        give_up_debt(
            organization_id=organization_id,
            amount_nanos=min(nanos, owed_nanos(organization_id)),
            idempotency_key=new_id("collection"),
            actor=actor,
            reason=reason,
            now=now,
        )


@transaction.atomic
def schedule_step(
    *, actor: Actor, days: int, kind: str, step: ScheduledStep | None = None
) -> ScheduledStep:
    """Add a step to the schedule, or move one. Raises NotPermitted, InvalidValue, Conflict."""
    require_operator(actor, Permission.FINANCE_WRITE)
    steps = {row.days: row.kind for row in ScheduledStep.objects.select_for_update()}
    if step is not None:
        steps.pop(step.days, None)
    if days in steps:
        raise Conflict(f"There is already a step on day {days}.", param="days")
    _check_schedule({**steps, days: kind})
    row = ScheduledStep.objects.get(pk=step.pk) if step else ScheduledStep()
    row.days, row.kind = days, kind
    row.save()
    _record_schedule(actor, "collection.schedule", days=days, kind=kind)
    return row


@transaction.atomic
def unschedule_step(*, actor: Actor, step: ScheduledStep) -> None:
    """Take a step out of the schedule."""
    require_operator(actor, Permission.FINANCE_WRITE)
    ScheduledStep.objects.filter(pk=step.pk).delete()
    _record_schedule(actor, "collection.unschedule", days=step.days, kind=step.kind)


@transaction.atomic
def set_settings(*, actor: Actor, min_cents: int, hour: int) -> Settings:
    """Set what is too little to collect, and from which hour (UTC) on steps are taken."""
    require_operator(actor, Permission.FINANCE_WRITE)
    if not 0 <= hour <= 23:
        raise InvalidValue(f"hour is {hour}; wanted 0 to 23.", param="hour")
    if not 0 <= min_cents <= MIN_CENTS_MAX:
        raise InvalidValue(
            f"min_cents is {min_cents}; wanted 0 to {MIN_CENTS_MAX}.", param="min_cents"
        )
    row, _ = Settings.objects.update_or_create(
        id=1, defaults={"min_cents": min_cents, "hour": hour}
    )
    _record_schedule(actor, "collection.set", min_cents=min_cents, hour=hour)
    return row


@contextmanager
def _decided(
    organization_id: str,
    actor: Actor,
    reason: str,
    outcome: str,
    now: datetime,
    *,
    is_open: bool = True,
) -> Iterator[Look]:
    """Hold a case while it is decided about; then log the decision, plan on and keep it."""
    require_operator(actor, Permission.FINANCE_WRITE)
    reason = reason.strip()
    if not 0 < len(reason) <= REASON_MAX:
        message = f"reason has {len(reason)} characters; wanted 1 to {REASON_MAX}."
        raise InvalidValue(message, param="reason")
    with held(organization_id, now=now) as look:
        if look is None or (is_open and not look.case.is_open):
            raise Conflict("Nothing is being collected from this organization.")
        log_step(
            look.case, new_id("operator"), outcome,
            due_cents=look.owed.cents, actor=actor, reason=reason, now=now,
        )  # fmt: skip
        yield look
        if look.case.is_open and look.owed.due:
            plan(look)
        if look.case.state != State.WRITTEN_OFF:
            save(look)


def _check_until(until: date, now: datetime) -> None:
    first, last = now.date(), now.date() + PAUSE_DAYS_MAX * DAY
    if not first <= until <= last:
        raise InvalidValue(f"until is {until}; wanted {first} to {last}.", param="until")


def _require_owing(look: Look) -> None:
    if not look.is_owing:
        raise Conflict("Nothing undisputed is overdue.")


def _require_unpaid(look: Look) -> None:
    """A measure is not taken while what is on its way pays what it would be taken for."""
    _require_owing(look)
    if look.owed.is_met_by(selectors.on_its_way_cents(look.case.organization_id, look.now)):
        raise Conflict("A payment is on its way.")


def _require_still(look: Look) -> None:
    """Nobody knows what is left to charge, or to give up, while any payment is on its way."""
    _require_owing(look)
    if selectors.on_its_way_cents(look.case.organization_id, look.now):
        raise Conflict("A payment is on its way.")


def _step_over(look: Look, kind: StepKind) -> None:
    """Count a measure that was taken ahead as taken, with what comes before it."""
    days = next((days for days, each in selectors.schedule() if each == kind), None)
    if days is not None and (look.case.last_days is None or look.case.last_days < days):
        look.case.last_days, look.case.last_on = days, look.now.date()
    if look.owed.due:
        plan(look)


def _go_back_to_grace(look: Look) -> None:
    """Have measures follow anew: what was charged before them stays charged."""
    case = look.case
    measures_from = min(
        (d for d, kind in selectors.schedule() if kind != StepKind.RETRY), default=0
    )
    before = [d for d, kind in selectors.schedule() if d < measures_from]
    case.last_days, case.last_on = max(before, default=None), look.now.date()
    case.round += 1
    case.state = State.GRACE if case.is_open else State.CURRENT


def _record_schedule(actor: Actor, action: str, **details: Any) -> None:
    audit.record(
        actor=actor, action=action, target_kind="collection", target_id="",
        target_name="Schedule of collection", details=details,
    )  # fmt: skip


def _check_schedule(steps: dict[int, str]) -> None:
    for kind in set(steps.values()) - set(StepKind.values):
        wanted = ", ".join(StepKind.values)
        raise InvalidValue(f"kind is {kind!r}; wanted one of {wanted}.", param="kind")
    for kind in (StepKind.LIMIT, StepKind.SUSPEND):
        if list(steps.values()).count(kind) > 1:
            raise Conflict(f"“{kind.label}” is already in the schedule.", param="kind")
        if steps.get(0) == kind:
            raise InvalidValue("Nothing is overdue yet on the due date.", param="days")
    days_of = {kind: days for days, kind in steps.items()}
    limit, suspend = days_of.get(StepKind.LIMIT), days_of.get(StepKind.SUSPEND)
    if limit is not None and suspend is not None and limit > suspend:
        raise InvalidValue("Limiting comes before suspending.", param="days")
    for days in steps:
        if not 0 <= days <= DAYS_MAX:
            raise InvalidValue(f"days is {days}; wanted 0 to {DAYS_MAX}.", param="days")

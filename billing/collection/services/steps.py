"""What a look does: opens, follows or ends a case, and takes the step that is due."""

from datetime import datetime, timedelta

from billing.collection import selectors
from billing.collection.charging import charge
from billing.collection.models import Case, State, StepKind
from billing.collection.schedule import Planned, moment, next_step
from billing.collection.services import measures, telling
from billing.collection.services.log import log_step
from billing.collection.services.look import Look
from billing.collection.services.measures import COLLECTION

DAY = timedelta(days=1)
AGAIN = timedelta(hours=1)
"""How soon an organization is looked at that waits for something."""


def proceed(look: Look) -> None:
    """Bring a case to where it belongs, and keep when it is to be looked at next."""
    if not look.is_owing:
        close(look)
        return
    case, now = look.case, look.now
    follow(look)
    is_paused = pauses(case, now)
    planned = plan(look)
    due_at = planned.at(look.settings.hour) if planned else now
    coming = selectors.on_its_way_cents(case.organization_id, now, due_at=due_at)
    is_paying = look.owed.is_met_by(coming)
    case.waits_for = "pause" if is_paused else "payment" if is_paying else ""
    if planned and not case.waits_for and due_at <= now:
        take(look, planned)
    save(look)


def close(look: Look) -> None:
    """End a case with nothing left to collect, and all that was done because of it."""
    case, owed = look.case, look.owed
    if case.state == State.WRITTEN_OFF and not case.is_open:
        save(look)
        return
    had_measures, was_open = case.has_measures, case.is_open
    case.state, case.opened_at = State.CURRENT, None
    case.last_days = case.last_on = case.not_before = None
    case.paused_at, case.paused_until, case.pause_reason = None, None, ""
    waits_on = was_open or case.waits_for == "dispute"
    case.waits_for = "dispute" if owed.is_disputed and waits_on else ""
    if had_measures:
        reason = "disputed" if owed.is_disputed else "paid"
        name = f"reinstate:{look.now.isoformat()}"
        log_step(case, name, "reinstated", due_cents=owed.cents, reason=reason, now=look.now)
        telling.reinstated(look, name)
        measures.lift(case, look.organization, actor=COLLECTION, reason=reason, now=look.now)
    save(look)


def follow(look: Look) -> None:
    """Count from the oldest invoice. A service that was limited for one that is paid by now stays
    so until nothing is overdue; else the next invoice begins at the first step."""
    case, oldest = look.case, look.owed.oldest
    if case.is_open and case.invoice_id == oldest.id:
        return
    if not case.is_open or not case.has_measures:
        case.round += 1
        case.state = State.RETRYING
        case.last_days = case.last_on = case.not_before = None
    case.opened_at = case.opened_at or look.now
    case.invoice_id = oldest.id


def pauses(case: Case, now: datetime) -> bool:
    """Tell whether a pause holds the next step up, ending one that is over."""
    if case.paused_at is None:
        return False
    if case.paused_until is None or case.paused_until >= now.date():
        return True
    end_pause(case, now)
    return False


def end_pause(case: Case, now: datetime) -> None:
    """Go on from tomorrow."""
    case.paused_at, case.paused_until, case.pause_reason = None, None, ""
    case.not_before = now.date() + DAY


def plan(look: Look) -> Planned | None:
    """Return the next step, which the case knows from now on."""
    case = look.case
    planned = next_step(
        selectors.schedule(),
        due_on=look.owed.oldest.due_on,
        last_days=case.last_days,
        last_on=case.last_on,
        not_before=case.not_before,
    )
    case.next_kind = planned.kind if planned else ""
    case.next_on = planned.on if planned else None
    return planned


def take(look: Look, planned: Planned) -> None:
    """Take a step of the schedule: the log's row, the mail and what the step does."""
    count_as_taken(look, planned)
    name = planned.name
    if planned.kind == StepKind.RETRY:
        retry(look, name)
    elif planned.kind == StepKind.LIMIT:
        limit(look, name)
    else:
        suspend(look, name)


def count_as_taken(look: Look, planned: Planned) -> None:
    """Go on to the step after this one."""
    case = look.case
    case.last_days, case.last_on, case.not_before = planned.days, look.now.date(), None
    plan(look)


def retry(look: Look, name: str) -> None:
    """Charge what is due, or remind where that cannot be. While a part is on its way nobody knows
    what will be left to charge."""
    case, owed, now = look.case, look.owed, look.now
    is_partly_paying = selectors.on_its_way_cents(case.organization_id, now) > 0
    asked_count = 0 if is_partly_paying else charge(owed, now=now)
    outcome = "charged" if asked_count else "reminded"
    log_step(case, name, outcome, due_cents=owed.cents, now=now)
    if not case.has_measures:
        is_last = case.next_kind != StepKind.RETRY
        case.state = State.GRACE if is_last else State.RETRYING
    if asked_count:
        case.waits_for = "payment"
    else:
        telling.reminded(look, name)


def limit(look: Look, name: str) -> None:
    """Limit the service."""
    if look.case.suspended_at is None:
        look.case.state = State.LIMITED
    log_step(look.case, name, "limited", due_cents=look.owed.cents, now=look.now)
    telling.limited(look, name)
    measures.limit(look.case, now=look.now)


def suspend(look: Look, name: str) -> None:
    """Suspend the organization."""
    case, owed = look.case, look.owed
    case.state = State.SUSPENDED
    log_step(case, name, "suspended", due_cents=owed.cents, now=look.now)
    telling.suspended(look, name)
    measures.suspend(
        case, look.organization, actor=COLLECTION, reason=f"overdue: {owed.oldest.number}",
        now=look.now,
    )  # fmt: skip


def save(look: Look) -> None:
    """Keep a case, with when it is to be looked at next."""
    case, owed, now = look.case, look.owed, look.now
    case.due_cents = owed.cents
    if not case.is_open:
        case.next_kind, case.next_on = "", None
    moments = []
    if owed.next_due_on is not None:
        moments.append(moment(owed.next_due_on, 0))
    if case.waits_for:
        moments.append(now + AGAIN)
    elif case.is_open:
        on = moment(case.next_on, look.settings.hour) if case.next_on else now + DAY
        moments.append(min(max(on, now), now + DAY))
    case.next_at = min(moments, default=None)
    case.save()

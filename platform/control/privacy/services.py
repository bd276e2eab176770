"""Asking for a copy or the end of a person's data, and doing it. Tasks run at least once: a worker
has an errand to itself for a while, and each step may be repeated."""

from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.utils import timezone

from control.actor import Actor, person
from control.audit import services as audit
from control.errors import Conflict, InvalidValue, NotPermitted, ServiceError
from control.operators import Duty, require_operator
from control.privacy.copying import write_copy
from control.privacy.erasing import consequences, erase, obstacles
from control.privacy.models import Errand, Kind, State
from control.privacy.selectors import open_errands
from control.tenants import selectors as tenants
from control.tenants.models import User

KEEP_COPIES = timedelta(days=7)
ATTEMPTS_MAX = 3
PAGE = 50
BUSY = timedelta(minutes=5)
"""A worker that has it for longer died: tasks end before."""
FAILED = "It failed on our side, three times. Our operators can see why."

logger = structlog.get_logger(__name__)


@transaction.atomic
def ask(*, actor: Actor, asked_by: User, user: User, kind: str, confirmation: str = "") -> Errand:
    """Ask for something about a person's data: they themselves, or an operator who helps customers.

    To erase takes the person's address as `confirmation`. Raises InvalidValue without, Conflict
    while the same is under way or something stands against it.
    """
    if actor.user_id != user.id:
        require_operator(actor, Duty.HELP_CUSTOMERS)
    user = tenants.locked_user(user.id)
    if user.erased_at is not None:
        raise Conflict("They are erased already.")
    if kind == Kind.ERASURE:
        _check_erasure(user, confirmation)
    if open_errands().filter(person=user, kind=kind).exists():
        raise Conflict("This is under way already.")
    errand = Errand.objects.create(person=user, asked_by=asked_by, kind=kind)
    _record(actor, f"person.ask_{kind}", errand)
    return errand


def _check_erasure(user: User, confirmation: str) -> None:
    if confirmation.strip().lower() != user.email:
        raise InvalidValue(
            "Type the address of the account that is to be erased.", param="confirmation"
        )
    against = obstacles(user)
    if against:
        raise Conflict(" ".join(against))


def run(errand_id: str, *, now: datetime) -> None:
    """Do an errand that waits; one that another worker does, or did, is left alone."""
    begun = _begin(errand_id, now)
    if begun is None:
        return
    try:
        _do(begun, now)
    except ServiceError as refusal:
        _finish(begun, State.REFUSED, [refusal.message])
    except Exception as error:
        logger.error("errand_failed", errand_id=errand_id, error=type(error).__name__)
        Errand.objects.filter(id=errand_id).update(busy_until=None)
        raise


@transaction.atomic
def _begin(errand_id: str, now: datetime) -> Errand | None:
    rows = Errand.objects.select_for_update(skip_locked=True, of=("self",), no_key=True)
    errand = rows.filter(id=errand_id, state=State.WAITING).defer("copy").first()
    if errand is None or (errand.busy_until is not None and errand.busy_until > now):
        return None
    if errand.attempts >= ATTEMPTS_MAX:
        _finish(errand, State.FAILED, [FAILED])
        return None
    errand.attempts += 1
    errand.busy_until = now + BUSY
    errand.save(update_fields=["attempts", "busy_until"])
    return errand


def _do(errand: Errand, now: datetime) -> None:
    user, actor = errand.person, person(errand.asked_by)
    if errand.kind == Kind.REHEARSAL:
        against = obstacles(user)
        told = [f"Refused as things stand: {each}" for each in against]
        _finish(errand, State.DONE, [*told, *consequences(user)])
    elif errand.kind == Kind.ERASURE:
        told = erase(user, actor=actor, now=now)
        _finish(errand, State.DONE, told)
    else:
        content = write_copy(user, now=now, progress=lambda percent: _progress(errand, percent))
        Errand.objects.filter(id=errand.id, state=State.WAITING).update(copy=content)
        _finish(errand, State.DONE, [])


def _progress(errand: Errand, percent: int) -> None:
    Errand.objects.filter(id=errand.id).update(percent=percent)


def _finish(errand: Errand, state: State, told: list[str]) -> None:
    Errand.objects.filter(id=errand.id, state=State.WAITING).update(
        state=state, told=told, percent=100, finished_at=timezone.now()
    )


@transaction.atomic
def take_copy(*, actor: Actor, errand: Errand) -> bytes:
    """Return a copy, and write down who took it. Raises Conflict for one that is not there."""
    if actor.user_id != errand.person_id:
        require_operator(actor, Duty.HELP_CUSTOMERS)
    if errand.person.erased_at is not None and not actor.is_operator:
        raise NotPermitted("They are erased.")
    if not errand.copy:
        raise Conflict("The copy is not there (any more): ask for a new one.")
    _record(actor, "person.take_copy", errand)
    return bytes(errand.copy)


def run_waiting(*, now: datetime) -> int:
    """Do what waits; return how many were tried."""
    waiting = list(open_errands().values_list("id", flat=True)[:PAGE])
    failed = []
    for errand_id in waiting:
        try:
            run(errand_id, now=now)
        except Exception as error:  # one that fails holds no other up
            failed.append(error)
    if failed:
        raise failed[0]
    return len(waiting)


def trim(*, now: datetime) -> int:
    """Delete copies that are a week old; return how many."""
    old = Errand.objects.filter(copy__isnull=False, finished_at__lt=now - KEEP_COPIES)
    return old.update(copy=None)


def _record(actor: Actor, action: str, errand: Errand) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="user",
        target_id=errand.person_id,
        details={"errand": errand.id},
    )

"""Requests for the export or the erasure of a person's data: create, run and purge."""

from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from control.accounts.models import User
from control.accounts.selectors import locked_user
from control.audit import services as audit
from control.data_requests.erasure import consequences, erase, obstacles
from control.data_requests.export import write_export
from control.data_requests.models import DataSubjectRequest, RequestKind, RequestState
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound, ServiceError
from control.permissions import Actor, Permission, require_operator

EXPORT_RETENTION = timedelta(days=7)
SHOWN = 10
ATTEMPTS_MAX = 3
PAGE = 50
BUSY = timedelta(minutes=5)
"""A worker that has it for longer died: tasks end before."""
FAILED = "It failed on our side, three times. Our operators can see why."

logger = structlog.get_logger(__name__)


@transaction.atomic
def create_request(
    *, actor: Actor, asked_by: User, user: User, kind: str, confirmation: str = ""
) -> DataSubjectRequest:
    """Ask for something about a person's data: they themselves, or an operator who helps customers.

    To erase takes the person's address as `confirmation`. Raises InvalidValue without, Conflict
    while the same is under way or something stands against it.
    """
    if actor.user_id != user.id:
        require_operator(actor, Permission.CUSTOMERS_WRITE)
    user = locked_user(user.id)
    if user.erased_at is not None:
        raise Conflict("They are erased already.")
    if kind == RequestKind.ERASURE:
        _check_erasure(user, confirmation)
    if open_requests().filter(person=user, kind=kind).exists():
        raise Conflict("This is under way already.")
    request = DataSubjectRequest.objects.create(person=user, asked_by=asked_by, kind=kind)
    _record(actor, f"person.ask_{kind}", request)
    return request


def _check_erasure(user: User, confirmation: str) -> None:
    if confirmation.strip().lower() != user.email:
        raise InvalidValue(
            "Type the address of the account that is to be erased.", param="confirmation"
        )
    against = obstacles(user)
    if against:
        raise Conflict(" ".join(against))


def run(request_id: str, *, now: datetime) -> None:
    """Run a request that waits; one that another worker runs, or ran, is left alone."""
    begun = _begin(request_id, now)
    if begun is None:
        return
    try:
        _do(begun, now)
    except ServiceError as refusal:
        _finish(begun, RequestState.REFUSED, [refusal.message])
    except Exception as error:
        logger.error("errand_failed", errand_id=request_id, error=type(error).__name__)
        DataSubjectRequest.objects.filter(id=request_id).update(busy_until=None)
        raise


@transaction.atomic
def _begin(request_id: str, now: datetime) -> DataSubjectRequest | None:
    rows = DataSubjectRequest.objects.select_for_update(skip_locked=True, of=("self",), no_key=True)
    request = rows.filter(id=request_id, state=RequestState.WAITING).defer("copy").first()
    if request is None or (request.busy_until is not None and request.busy_until > now):
        return None
    if request.attempts >= ATTEMPTS_MAX:
        _finish(request, RequestState.FAILED, [FAILED])
        return None
    request.attempts += 1
    request.busy_until = now + BUSY
    request.save(update_fields=["attempts", "busy_until"])
    return request


def _do(request: DataSubjectRequest, now: datetime) -> None:
    user, actor = request.person, Actor.for_user(request.asked_by)
    if request.kind == RequestKind.REHEARSAL:
        against = obstacles(user)
        told = [f"Refused as things stand: {each}" for each in against]
        _finish(request, RequestState.DONE, [*told, *consequences(user)])
    elif request.kind == RequestKind.ERASURE:
        told = erase(user, actor=actor, now=now)
        _finish(request, RequestState.DONE, told)
    else:
        content = write_export(user, now=now, progress=lambda percent: _progress(request, percent))
        DataSubjectRequest.objects.filter(id=request.id, state=RequestState.WAITING).update(
            copy=content
        )
        _finish(request, RequestState.DONE, [])


def _progress(request: DataSubjectRequest, percent: int) -> None:
    DataSubjectRequest.objects.filter(id=request.id).update(percent=percent)


def _finish(request: DataSubjectRequest, state: RequestState, told: list[str]) -> None:
    DataSubjectRequest.objects.filter(id=request.id, state=RequestState.WAITING).update(
        state=state, told=told, percent=100, finished_at=timezone.now()
    )


def run_pending(*, now: datetime) -> int:
    """Do what waits; return how many were tried."""
    waiting = list(open_requests().values_list("id", flat=True)[:PAGE])
    failed = []
    for request_id in waiting:
        try:
            run(request_id, now=now)
        except Exception as error:  # one that fails holds no other up
            failed.append(error)
    if failed:
        raise failed[0]
    return len(waiting)


@transaction.atomic
def take_export(*, actor: Actor, request: DataSubjectRequest) -> bytes:
    """Return an export, and write down who took it. Raises Conflict for one that is not there."""
    if actor.user_id != request.person_id:
        require_operator(actor, Permission.CUSTOMERS_WRITE)
    if request.person.erased_at is not None and not actor.is_operator:
        raise NotPermitted("They are erased.")
    if not request.copy:
        raise Conflict("The copy is not there (any more): ask for a new one.")
    _record(actor, "person.take_copy", request)
    return bytes(request.copy)


def purge(*, now: datetime) -> int:
    """Delete copies that are a week old; return how many."""
    old = DataSubjectRequest.objects.filter(
        copy__isnull=False, finished_at__lt=now - EXPORT_RETENTION
    )
    return old.update(copy=None)


def _record(actor: Actor, action: str, request: DataSubjectRequest) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="user",
        target_id=request.person_id,
        details={"errand": request.id},
    )


def requests_of(person: User) -> list[DataSubjectRequest]:
    """Return what was asked of a person's data, the latest first, without the copies."""
    return list(DataSubjectRequest.objects.filter(person=person).defer("copy")[:SHOWN])


def get_request(person: User, request_id: str) -> DataSubjectRequest:
    """Return one of a person's own. Raises ObjectNotFound."""
    found = DataSubjectRequest.objects.filter(person=person, id=request_id).first()
    if found is None:
        raise ObjectNotFound("There is no such data request.")
    return found


def any_request(request_id: str) -> DataSubjectRequest:
    """Return a request of anybody's, for operators. Raises ObjectNotFound."""
    found = DataSubjectRequest.objects.filter(id=request_id).first()
    if found is None:
        raise ObjectNotFound("There is no such data request.")
    return found


def open_requests() -> QuerySet[DataSubjectRequest]:
    """Return what waits, the oldest first."""
    return (
        DataSubjectRequest.objects.filter(state=RequestState.WAITING)
        .defer("copy")
        .order_by("created_at")
    )

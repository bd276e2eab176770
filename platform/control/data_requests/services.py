"""Requests for the export or the erasure of a person's data: create, run and purge."""

from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from control.accounts.models import User, locked_user
from control.audit import services as audit
from control.data_requests.erasure import consequences, erase, obstacles
from control.data_requests.export import write_export
from control.data_requests.models import (
    EXPORT_RETENTION,
    DataSubjectRequest,
    RequestKind,
    RequestState,
)
from control.db.models import get_or_not_found
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound, ServiceError
from control.permissions import Actor, Permission, require_operator

SHOWN = 10
ATTEMPTS_MAX = 3
PAGE = 50
BUSY = timedelta(minutes=5)
"""A worker's lease on a request. It is longer than a task's time limit, so a worker that exceeds it
has died."""
FAILED = _("Something went wrong on our side, three times. Our operators can see why.")

logger = structlog.get_logger(__name__)


@transaction.atomic
def create_request(
    *, actor: Actor, asked_by: User, user: User, kind: str, confirmation: str = ""
) -> DataSubjectRequest:
    """Create a request on a person's data, made by the person or by an operator.

    An erasure takes the person's address as `confirmation`. Raises InvalidValue without it, and
    Conflict while the same request is in progress or something prevents it.
    """
    if actor.user_id != user.id:
        require_operator(actor, Permission.CUSTOMERS_WRITE)
    user = locked_user(user.id)
    if user.erased_at is not None:
        raise Conflict("This person is already erased.")
    if kind == RequestKind.ERASURE:
        _check_erasure(user, confirmation)
    if open_requests().filter(person=user, kind=kind).exists():
        raise Conflict("This request is already in progress.")
    request = DataSubjectRequest.objects.create(person=user, asked_by=asked_by, kind=kind)
    _record(actor, f"data_request.{kind}_requested", request)
    return request


def _check_erasure(user: User, confirmation: str) -> None:
    if confirmation.strip().lower() != user.email:
        raise InvalidValue("Enter the email of the account to erase.", param="confirmation")
    reasons = obstacles(user)
    if reasons:
        raise Conflict(" ".join(reasons))


def run(request_id: str, *, now: datetime) -> None:
    """Run a waiting request; skip it if another worker runs it, or ran it."""
    request = _begin(request_id, now)
    if request is None:
        return
    try:
        _execute(request, now)
    except ServiceError as error:
        _finish(request, RequestState.REFUSED, [error.message])
    except Exception as error:
        logger.error("data_request_failed", data_request_id=request_id, error=type(error).__name__)
        DataSubjectRequest.objects.filter(id=request_id).update(busy_until=None)
        raise


@transaction.atomic
def _begin(request_id: str, now: datetime) -> DataSubjectRequest | None:
    rows = DataSubjectRequest.objects.select_for_update(skip_locked=True, of=("self",), no_key=True)
    request = rows.filter(id=request_id, state=RequestState.WAITING).defer("export").first()
    if request is None or (request.busy_until is not None and request.busy_until > now):
        return None
    if request.attempts >= ATTEMPTS_MAX:
        _finish(request, RequestState.FAILED, [str(FAILED)])
        return None
    request.attempts += 1
    request.busy_until = now + BUSY
    request.save(update_fields=["attempts", "busy_until"])
    return request


def _execute(request: DataSubjectRequest, now: datetime) -> None:
    user, actor = request.person, Actor.for_user(request.asked_by)
    if request.kind == RequestKind.ERASURE_DRY_RUN:
        words = gettext("Not possible yet: %(reason)s")
        refusals = [words % {"reason": each} for each in obstacles(user)]
        _finish(request, RequestState.DONE, [*refusals, *consequences(user)])
    elif request.kind == RequestKind.ERASURE:
        _finish(request, RequestState.DONE, erase(user, actor=actor, now=now))
    else:
        content = write_export(user, now=now, progress=lambda percent: _progress(request, percent))
        DataSubjectRequest.objects.filter(id=request.id, state=RequestState.WAITING).update(
            export=content
        )
        _finish(request, RequestState.DONE, [])


def _progress(request: DataSubjectRequest, percent: int) -> None:
    DataSubjectRequest.objects.filter(id=request.id).update(percent=percent)


def _finish(request: DataSubjectRequest, state: RequestState, sentences: list[str]) -> None:
    DataSubjectRequest.objects.filter(id=request.id, state=RequestState.WAITING).update(
        state=state, told=sentences, percent=100, finished_at=timezone.now()
    )


def run_pending(*, now: datetime) -> int:
    """Run the requests that wait; return how many were attempted."""
    waiting = list(open_requests().values_list("id", flat=True)[:PAGE])
    failed = []
    for request_id in waiting:
        try:
            run(request_id, now=now)
        except Exception as error:  # a failure must not stop the others
            failed.append(error)
    if failed:
        raise failed[0]
    return len(waiting)


@transaction.atomic
def take_export(*, actor: Actor, request: DataSubjectRequest) -> bytes:
    """Return an export and record the download. Raises ObjectNotFound if there is none."""
    if actor.user_id != request.person_id:
        require_operator(actor, Permission.CUSTOMERS_WRITE)
    if request.person.erased_at is not None and not actor.is_operator:
        raise NotPermitted("This person is erased.")
    if not request.export:
        raise ObjectNotFound("The export is no longer available. Request a new one.")
    _record(actor, "data_request.exported", request)
    return bytes(request.export)


def purge(*, now: datetime) -> int:
    """Delete exports that are a week old; return how many."""
    old = DataSubjectRequest.objects.filter(
        export__isnull=False, finished_at__lt=now - EXPORT_RETENTION
    )
    return old.update(export=None)


def _record(actor: Actor, action: str, request: DataSubjectRequest) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="user",
        target_id=request.person_id,
        target_name=request.person.email,
        details={"data_request": request.id},
    )


def requests_of(person: User) -> list[DataSubjectRequest]:
    """Return a person's `SHOWN` latest requests, latest first, without the exports."""
    return list(DataSubjectRequest.objects.filter(person=person).defer("export")[:SHOWN])


def get_request(person: User, request_id: str) -> DataSubjectRequest:
    """Return a request on a person's own data. Raises ObjectNotFound."""
    requests = DataSubjectRequest.objects.filter(person=person)
    return get_or_not_found(requests, "data request", id=request_id)


def any_request(request_id: str) -> DataSubjectRequest:
    """Return a request on any person's data, for operators. Raises ObjectNotFound."""
    return get_or_not_found(DataSubjectRequest.objects.all(), "data request", id=request_id)


def open_requests() -> QuerySet[DataSubjectRequest]:
    """Return the waiting requests, oldest first."""
    return (
        DataSubjectRequest.objects.filter(state=RequestState.WAITING)
        .defer("export")
        .order_by("created_at")
    )

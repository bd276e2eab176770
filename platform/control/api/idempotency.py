"""`Idempotency-Key` on POST: a request with the same key and caller is executed once; a repeat
within a day gets the same response, with `Idempotent-Replayed: true`.

A rejected request stores nothing, and its key is free. A response may hold a secret that is shown
once, so it is encrypted with the encryption key and the idempotency key together, and is replayed
only to a caller who still has the roles that they had.
"""

import hashlib
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial, wraps
from typing import Any

from django.db import OperationalError, transaction
from django.http.request import RawPostDataException
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from control import encryption
from control.api.models import IdempotentRequest
from control.errors import Conflict, InvalidValue

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
KEY_MAX = 255
KEPT = timedelta(hours=24)
UNDER_WAY = timedelta(minutes=1)
"""After that a request whose process died may be repeated."""
PARAMETER = OpenApiParameter(
    HEADER,
    str,
    OpenApiParameter.HEADER,
    description="Makes the request happen once: the same key with the same body within 24 hours "
    "gets the first answer again, with `Idempotent-Replayed: true`; with another body 409.",
)
ENCRYPTION_PURPOSE = "answer of the management API"
Post = Callable[..., Response]
Act = Callable[[], Response]


def idempotent(post: Post) -> Post:
    """Execute a view's POST once for each idempotency key of a caller.

    Its changes and the key are committed in one transaction, so it must call no other service.
    """

    def carry_out(request: Request, act: Act) -> Response:
        with transaction.atomic():
            row, is_new = _claim(request)
            return _keep(row, request, act()) if is_new else _replay(row, request)

    return _keyed(post, carry_out)


def idempotent_outside_transaction(post: Post) -> Post:
    """Do the same outside a transaction, for a POST that calls others, such as Stripe.

    One that died half-way may be repeated after a minute, so it must be safe to execute twice.
    """

    def carry_out(request: Request, act: Act) -> Response:
        with transaction.atomic():
            row, is_new = _claim(request)
        if not is_new:
            return _replay(row, request)
        try:
            return _keep(row, request, act())
        except BaseException:
            row.delete()
            raise

    return _keyed(post, carry_out)


def _keyed(post: Post, carry_out: Callable[[Request, Act], Response]) -> Post:
    @wraps(post)
    def posted(view: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
        act = partial(post, view, request, *args, **kwargs)
        return carry_out(request, act) if HEADER in request.headers else act()

    posted.takes_idempotency_key = True  # type: ignore[attr-defined]
    return posted


def purge_requests(*, now: datetime) -> int:
    """Delete requests of over a day ago with their responses; return how many."""
    count, _ = IdempotentRequest.objects.filter(created_at__lte=now - KEPT).delete()
    return count


def _claim(request: Request) -> tuple[IdempotentRequest, bool]:
    """Return the request of the key, and whether it is this one.

    A second one at the same time waits here until the first is committed. Raises InvalidValue for
    an invalid key, and Conflict if the first takes too long.
    """
    key, now = _key(request), timezone.now()
    lookup = {"caller": _caller(request), "key_digest": _digest(key)}
    rows = IdempotentRequest.objects.filter(**lookup)
    rows.filter(created_at__lte=now - KEPT).delete()
    rows.filter(status=None, created_at__lte=now - UNDER_WAY).delete()
    fields = {"request_digest": _request_digest(request), "seats": _memberships(request)}
    try:
        return rows.get_or_create(**lookup, defaults={**fields, "created_at": now})
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "") != "55P03":  # lock_not_available
            raise
        raise _conflict("The first request with this key is still running.") from error


def _replay(row: IdempotentRequest, request: Request) -> Response:
    """Return the stored response. Raises Conflict if it may not be replayed."""
    if row.request_digest != _request_digest(request):
        raise _conflict("This key was used for another request. Use a new key.")
    if row.status is None:
        raise _conflict("The first request with this key is still running.")
    memberships = _memberships(request)
    if not all(membership in memberships for membership in row.seats):
        raise _conflict("Your role changed since the first request with this key. Use a new key.")
    try:
        body = encryption.decrypt(row.sealed, purpose=ENCRYPTION_PURPOSE, with_secret=_key(request))
    except encryption.DecryptionError as error:
        words = "The request was carried out, but its answer can no longer be read."
        raise _conflict(words) from error
    return Response(json.loads(body), status=row.status, headers={REPLAYED: "true"})


def _keep(row: IdempotentRequest, request: Request, response: Response) -> Response:
    body = JSONRenderer().render(response.data).decode()
    sealed = encryption.encrypt(body, purpose=ENCRYPTION_PURPOSE, with_secret=_key(request))
    stored = IdempotentRequest.objects.filter(pk=row.pk)
    stored.update(sealed=sealed, status=response.status_code)
    return response


def _key(request: Request) -> str:
    key: str = request.headers[HEADER]
    if not 0 < len(key) <= KEY_MAX or not key.isprintable():
        words = f"{HEADER} has {len(key)} characters; wanted 1 to {KEY_MAX} printable ones."
        raise InvalidValue(words, param=HEADER)
    return key


def _caller(request: Request) -> str:
    return str(getattr(request.user, "key_id", None) or request.user.pk)


def _memberships(request: Request) -> list[list[str]]:
    """Return a person's organization ids and roles; none for an API key: its rights end with it."""
    memberships = getattr(request.user, "memberships", None)
    if memberships is None:
        return []
    return sorted(map(list, memberships.values_list("organization_id", "role")))


def _request_digest(request: Request) -> str:
    sent = request._request
    try:
        body = sent.body
    except RawPostDataException:  # a multipart form, which no view takes
        body = b""
    return _digest(f"{sent.method} {sent.get_full_path()}\n".encode() + body)


def _digest(value: str | bytes) -> str:
    return hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()


def _conflict(words: str) -> Conflict:
    return Conflict(words, param=HEADER, code="idempotency_conflict")

"""Internal HTTP calls to billing, which takes no word of a gateway whose clock is wrong."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import msgspec
from django.http import HttpRequest, HttpResponse, JsonResponse

from billing.credit.services.leases import ClockError
from control.dataplane import codec

Asked = TypeVar("Asked", bound=msgspec.Struct)


def answer_record(
    request: HttpRequest,
    kind: type[Asked],
    service: Callable[[Asked, datetime], msgspec.Struct],
) -> HttpResponse:
    """Answer as control does; 409 says what is wrong with a clock."""
    try:
        return codec.answer_record(request, kind, service)
    except ClockError as error:
        return JsonResponse({"error": str(error)}, status=409)

"""Contract records in and out of internal HTTP calls."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import msgspec
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from control.errors import NotPermitted
from serving.contract.codec import ContractError, decode, encode

RequestRecord = TypeVar("RequestRecord", bound=msgspec.Struct)


def answer_record(
    request: HttpRequest,
    kind: type[RequestRecord],
    service: Callable[[RequestRecord, datetime], msgspec.Struct],
) -> HttpResponse:
    """Decode the body, ask the service, encode its answer; 400 names what is wrong with a body,
    403 whom the caller may not speak for."""
    try:
        # Not `request.body`, whose bound is that of customers' forms (`control.asgi_middleware`).
        asked = decode(request.read(), kind)
    except (ContractError, RecursionError) as error:
        return JsonResponse({"error": str(error)}, status=400)
    try:
        answer = service(asked, timezone.now())
    except NotPermitted as error:
        return JsonResponse({"error": str(error)}, status=error.status)
    return HttpResponse(encode(answer), content_type="application/json")

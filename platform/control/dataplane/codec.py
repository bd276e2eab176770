"""Decodes and encodes contract records of internal HTTP calls."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import msgspec
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from control.errors import ServiceError
from serving.contract.codec import ContractError, decode, encode

RequestRecord = TypeVar("RequestRecord", bound=msgspec.Struct)


def answer_record(
    request: HttpRequest,
    kind: type[RequestRecord],
    service: Callable[[RequestRecord, datetime], msgspec.Struct],
) -> HttpResponse:
    """Decode the body, call the service, and encode its result. Status 400 names the error in the
    body, and that of a service error comes with its code, such as 403 for a gateway or a fleet that
    the caller may not act for."""
    try:
        # `request.body` has the size limit of customers' forms (`control.asgi_middleware`).
        record = decode(request.read(), kind)
    except (ContractError, RecursionError) as error:
        return JsonResponse({"error": str(error)}, status=400)
    try:
        result = service(record, timezone.now())
    except ServiceError as error:
        return JsonResponse({"error": str(error), "code": error.code}, status=error.status)
    return HttpResponse(encode(result), content_type="application/json")

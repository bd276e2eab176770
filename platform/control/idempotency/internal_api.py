"""`POST /internal/v1/idempotency/…`: what gateways ask of idempotency keys."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from control.idempotency import services
from control.internal.calls import answer_record
from serving.contract.idempotency import Claim, Endings, KeepAnswer


@csrf_exempt
@require_POST
def claims(request: HttpRequest) -> HttpResponse:
    """Answer whether a request is the one of its key."""
    return answer_record(request, Claim, lambda asked, now: services.claim(asked, now=now))


@csrf_exempt
@require_POST
def answers(request: HttpRequest) -> HttpResponse:
    """Keep what came of a request."""
    return answer_record(request, KeepAnswer, lambda asked, now: services.keep(asked, now=now))


@csrf_exempt
@require_POST
def endings(request: HttpRequest) -> HttpResponse:
    """Take in how requests ended."""
    return answer_record(request, Endings, lambda asked, now: services.end(asked, now=now))

"""`POST /internal/v1/idempotency/…`: what gateways ask of idempotency keys."""

from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from control.gateways.services import require_own
from control.idempotency import services
from control.internal.callers import caller_of
from control.internal.calls import answer_record
from serving.contract.idempotency import (
    Claim,
    ClaimReply,
    Endings,
    EndingsReply,
    KeepAnswer,
    KeepReply,
)


@csrf_exempt
@require_POST
def claims(request: HttpRequest) -> HttpResponse:
    """Answer whether a request is the one of its key."""
    caller = caller_of(request)

    def claim(asked: Claim, now: datetime) -> ClaimReply:
        require_own(caller, [asked.gateway_id])
        return services.claim(asked, now=now)

    return answer_record(request, Claim, claim)


@csrf_exempt
@require_POST
def answers(request: HttpRequest) -> HttpResponse:
    """Keep what came of a request."""
    caller = caller_of(request)

    def keep(asked: KeepAnswer, now: datetime) -> KeepReply:
        require_own(caller, [asked.claim.gateway_id])
        return services.keep(asked, now=now)

    return answer_record(request, KeepAnswer, keep)


@csrf_exempt
@require_POST
def endings(request: HttpRequest) -> HttpResponse:
    """Take in how requests ended."""
    caller = caller_of(request)

    def end(asked: Endings, now: datetime) -> EndingsReply:
        require_own(caller, services.claimants(asked))
        return services.end(asked, now=now)

    return answer_record(request, Endings, end)

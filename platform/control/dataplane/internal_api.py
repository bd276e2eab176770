"""What the data plane calls below /internal/v1/: the change feed, heartbeats, idempotency keys."""

from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from control.dataplane import idempotency
from control.dataplane.authentication import caller_of
from control.dataplane.codec import answer_record
from control.dataplane.gateways import name_gateway, record_heartbeat, require_ownership
from control.feed.views import feed
from serving.contract.credential import Caller
from serving.contract.idempotency import (
    Claim,
    ClaimReply,
    Endings,
    EndingsReply,
    KeepAnswer,
    KeepReply,
)
from serving.contract.presence import Presence
from serving.contract.records import FleetSizeRecord


@csrf_exempt
@require_POST
def claims(request: HttpRequest) -> HttpResponse:
    """Answer whether a request is the one of its key."""
    caller = caller_of(request)

    def claim(asked: Claim, now: datetime) -> ClaimReply:
        require_ownership(caller, [asked.gateway_id])
        return idempotency.claim(asked, now=now)

    return answer_record(request, Claim, claim)


@csrf_exempt
@require_POST
def answers(request: HttpRequest) -> HttpResponse:
    """Keep what came of a request."""
    caller = caller_of(request)

    def keep(asked: KeepAnswer, now: datetime) -> KeepReply:
        require_ownership(caller, [asked.claim.gateway_id])
        return idempotency.store_response(asked, now=now)

    return answer_record(request, KeepAnswer, keep)


@csrf_exempt
@require_POST
def endings(request: HttpRequest) -> HttpResponse:
    """Take in how requests ended."""
    caller = caller_of(request)

    def end(asked: Endings, now: datetime) -> EndingsReply:
        require_ownership(caller, idempotency.claim_holders(asked))
        return idempotency.end_claim(asked, now=now)

    return answer_record(request, Endings, end)


@csrf_exempt
@require_POST
def gateways(request: HttpRequest) -> HttpResponse:
    """Answer how many gateways there are, the one that asks among them, and know its name."""
    caller = caller_of(request)
    return answer_record(request, Presence, lambda asked, now: _heartbeat(caller, asked, now))


def _heartbeat(caller: Caller, asked: Presence, now: datetime) -> FleetSizeRecord:
    name_gateway(caller, asked.gateway_id)
    count = record_heartbeat(gateway_id=asked.gateway_id, is_leaving=asked.is_leaving, now=now)
    return FleetSizeRecord(count)


urlpatterns = [
    path("feed", feed),
    path("gateways", gateways),
    path("idempotency/claims", claims),
    path("idempotency/answers", answers),
    path("idempotency/endings", endings),
]

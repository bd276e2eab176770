"""`POST /internal/v1/leases`: a gateway's poll for money."""

from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from billing.credit.services.leases import answer
from billing.internal import answer_record
from control.dataplane.authentication import caller_of
from control.dataplane.gateways import require_ownership
from serving.contract.lease import LeaseReply, LeaseRequest


@csrf_exempt
@require_POST
def leases(request: HttpRequest) -> HttpResponse:
    """Take back what is returned, answer each ask, name the leases to give back."""
    caller = caller_of(request)

    def lease(asked: LeaseRequest, now: datetime) -> LeaseReply:
        require_ownership(caller, [asked.gateway_id])
        return answer(asked, now=now)

    return answer_record(request, LeaseRequest, lease)

"""`POST /internal/v1/usage-events`: a gateway's batch of facts, answered after commit only."""

from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from billing.internal import answer_record
from billing.metering.ingest import ingest
from control.dataplane.authentication import caller_of
from control.dataplane.gateways import require_ownership
from serving.contract.usage import UsageBatch, UsageReceipt


@csrf_exempt
@require_POST
def usage_events(request: HttpRequest) -> HttpResponse:
    """Book a batch once."""
    caller = caller_of(request)

    def book(batch: UsageBatch, now: datetime) -> UsageReceipt:
        require_ownership(caller, [batch.gateway_id])
        return ingest(batch, now=now, caller=caller)

    return answer_record(request, UsageBatch, book)

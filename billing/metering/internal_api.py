"""`POST /internal/v1/usage-events`: a gateway's batch of facts, answered after commit only."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from billing.internal import answer_record
from billing.metering.ingest import ingest
from serving.contract.usage import UsageBatch


@csrf_exempt
@require_POST
def usage_events(request: HttpRequest) -> HttpResponse:
    """Book a batch once."""
    return answer_record(request, UsageBatch, lambda batch, now: ingest(batch, now=now))

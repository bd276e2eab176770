"""`POST /internal/v1/engine-counters`: a fleet's samples, answered after commit only."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from billing.economics.services import accept_samples
from billing.internal import answer_record
from serving.contract.engine_counters import CountersRequest


@csrf_exempt
@require_POST
def engine_counters(request: HttpRequest) -> HttpResponse:
    """Keep samples once."""
    return answer_record(request, CountersRequest, lambda asked, _: accept_samples(asked))

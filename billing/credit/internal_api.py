"""`POST /internal/v1/leases`: a gateway's poll for money."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from billing.credit.services.leases import answer
from billing.internal import answer_record
from serving.contract.lease import LeaseRequest


@csrf_exempt
@require_POST
def leases(request: HttpRequest) -> HttpResponse:
    """Take back what is returned, answer each ask, name the leases to give back."""
    return answer_record(request, LeaseRequest, lambda asked, now: answer(asked, now=now))

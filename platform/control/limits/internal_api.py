"""`POST /internal/v1/gateways`: a gateway lives."""

from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from control.gateways.services import name_gateway
from control.internal.callers import caller_of
from control.internal.calls import answer_record
from control.limits.services import note_gateway
from serving.contract.credential import Caller
from serving.contract.presence import Presence
from serving.contract.records import FleetSizeRecord


@csrf_exempt
@require_POST
def gateways(request: HttpRequest) -> HttpResponse:
    """Answer how many gateways there are, the one that asks among them, and know its name."""
    caller = caller_of(request)
    return answer_record(request, Presence, lambda asked, now: _note(caller, asked, now))


def _note(caller: Caller, asked: Presence, now: datetime) -> FleetSizeRecord:
    name_gateway(caller, asked.gateway_id)
    count = note_gateway(gateway_id=asked.gateway_id, is_leaving=asked.is_leaving, now=now)
    return FleetSizeRecord(count)

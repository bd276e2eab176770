"""Usage events as a gateway makes them."""

from datetime import UTC, datetime

from serving.contract.ids import new_id
from serving.contract.usage import LeaseCharge, UsageEvent
from serving.engine.usage import Tokens
from serving.usage.meter import Metered, make_event
from tests.support.catalog import price


def metered() -> Metered:
    return Metered(
        event_id=new_id(),
        gateway_id="gw_1",
        organization_id="org_a",
        project_id="proj_a",
        key_id="key_a",
        model_id="mdl",
        deployment_id="dep",
        schedule=(price(),),
        endpoint="chat.completions",
        received_at=datetime.now(UTC),
        streamed=False,
        client_request_id=None,
    )


def event(charged: int = 0) -> UsageEvent:
    charges = (LeaseCharge("org_a", "lease_1", charged),) if charged else ()
    tokens = Tokens(input=3, output=4)
    return make_event(metered(), outcome="completed", tokens=tokens, charges=charges)

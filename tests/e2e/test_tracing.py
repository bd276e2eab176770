"""One trace from the client's own context through the gateway into vLLM."""

import httpx
import pytest

from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.e2e

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CLIENT_SPAN_ID = "b7ad6b7169203331"
GATEWAY_SPAN = "penstock-gateway: chat penstock-demo"


def test_the_gateway_and_vllm_are_spans_of_the_clients_trace(stack, traces) -> None:
    reply = httpx.post(
        f"{stack.api_base}/chat/completions",
        headers={
            "authorization": f"Bearer {stack.api_key}",
            "traceparent": f"00-{TRACE_ID}-{CLIENT_SPAN_ID}-01",
        },
        json={"model": stack.model, "messages": [{"role": "user", "content": "hi"}]},
        timeout=60,
    )
    assert reply.status_code == 200
    wait_until(lambda: len(traces.of(TRACE_ID)) >= 3, seconds=60, what="three spans arrive")
    spans = traces.of(TRACE_ID)
    request, call = spans[GATEWAY_SPAN], spans["penstock-gateway: engine call"]
    assert request.parent_id == CLIENT_SPAN_ID
    assert call.parent_id == request.span_id
    assert spans["vllm: llm_request"].parent_id == call.span_id

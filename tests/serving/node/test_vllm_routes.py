"""Of all that the installed vLLM serves, a gateway reaches four routes: about ten seconds."""

import json
import subprocess
import sys

import pytest

from serving.contract.node import RouteGrant
from serving.fleet.launcher import FLEET_ROUTES, GATEWAY_ROUTES
from tests.serving.node.test_proxy import FLEET_TOKEN, TOKEN, request, running, status

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.vllm]

ROUTES = """
import json, os
os.environ["VLLM_SERVER_DEV_MODE"] = "1"
os.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(["--enable-lora"])
app = build_app(arguments, ("generate", "embed", "render", "transcription", "realtime"))
routes = []
for route in app.routes:
    for method in getattr(route, "methods", None) or ("GET",):
        routes.append((method, route.path))
print("ROUTES " + json.dumps(routes))
"""


def served() -> set[tuple[str, str]]:
    ended = subprocess.run((sys.executable, "-c", ROUTES), capture_output=True, check=True)
    line = next(line for line in ended.stdout.decode().splitlines() if line.startswith("ROUTES "))
    return {(method, path) for method, path in json.loads(line.removeprefix("ROUTES "))}


async def test_every_route_of_vllm_is_refused_unless_it_is_listed() -> None:
    routes = served()
    assert {("POST", "/invocations"), ("POST", "/pause"), ("POST", "/tokenize")} < routes
    assert len(routes) > 40
    # A pooling model's routes need its configuration.
    assert set(FLEET_ROUTES) - routes == {("POST", "/v1/embeddings")}
    grants = (RouteGrant(TOKEN, GATEWAY_ROUTES), RouteGrant(FLEET_TOKEN, FLEET_ROUTES))
    async with running(grants=grants) as node:
        for token, listed in ((TOKEN, GATEWAY_ROUTES), (FLEET_TOKEN, FLEET_ROUTES), ("", ())):
            for method, path in sorted(routes):
                has_body = method == "POST"
                asked = request(
                    path,
                    method=method,
                    headers=f"authorization: Bearer {token}\r\n",
                    length="content-length: 8\r\n" if has_body else None,
                    body=b'{"a": 1}' if has_body else b"",
                )
                before = len(node.told.requests)
                answer = await node.ask(asked)
                was_admitted = len(node.told.requests) > before
                assert was_admitted == ((method, path) in listed), (token, method, path)
                assert was_admitted or status(answer) in (401, 403, 404)

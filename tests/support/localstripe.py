"""localstripe, a Stripe written by others, as a process: what it covers, under the same services.

It knows an older Stripe, so what is newer is taken out of the requests on the way to it, and the
fields that it lacks are put into its answers. What it says of them is not tested with it.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import requests
import stripe

from tests.support.environment import free_port

UNKNOWN = (
    "description", "allowed_payment_method_types[0]", "return_url", "created[gte]", "created[lt]",
    "reason",
)  # fmt: skip
LACKING: dict[str, dict[str, Any]] = {
    "payment_intent": {"setup_future_usage": None, "amount_received": 0},
    "charge": {"receipt_url": None},
}
UP_WITHIN_SECONDS = 20


@contextmanager
def running_localstripe() -> Iterator[str]:
    """Run it on a free port; yield its address."""
    port = free_port()
    command = [sys.executable, "-m", "localstripe", "--from-scratch", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + UP_WITHIN_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        try:
            requests.get(f"{url}/v1/customers", timeout=1)
        except requests.ConnectionError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("localstripe did not start")


class OlderStripe(stripe.RequestsClient):
    """stripe-python's own client, but for what localstripe does not know yet."""

    def request(
        self, method: str, url: str, headers: Any, post_data: Any = None, **options: Any
    ) -> Any:
        """Ask without what is unknown there."""
        parts = urlsplit(url)
        named = [each for each in parts.query.split("&") if not each.startswith("customer=")]
        asked = "&".join(named)
        url = urlunsplit(parts._replace(query=_known(asked)))
        data = _known(post_data) if isinstance(post_data, str) else post_data
        body, status, found = super().request(method, url, headers, data, **options)
        return _filled(body) if status == 200 else body, status, found


def _known(form: str) -> str:
    pairs = parse_qsl(form, keep_blank_values=True)
    return urlencode([pair for pair in pairs if pair[0] not in UNKNOWN])


def _filled(body: Any) -> str:
    answer = json.loads(body)
    for each in answer["data"] if answer.get("object") == "list" else [answer]:
        for name, value in LACKING.get(each.get("object", ""), {}).items():
            each.setdefault(name, value)
        if each.get("object") == "payment_intent" and each["status"] == "succeeded":
            each["amount_received"] = each["amount"]
    return json.dumps(answer)

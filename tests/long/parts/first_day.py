"""An operator's first day: the page that tells it, and a streamed chat by the official client."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from tests.long.parts import PartFailed
from tests.long.parts.host import wait_for
from tests.long.parts.installation import (
    API,
    CERTIFICATE,
    ENVIRONMENT,
    OPERATOR,
    Installation,
    Page,
)

BOOKED = """
SELECT min(outcome), sum(output_tokens), count(*) FROM metering_usage_event WHERE event_id = '{}'
HAVING count(*) > 0;
"""
STATE = "/root/first-day.json"
"""Where the page's results are, on the host."""
RESULTS = ("ORGANIZATION", "OPERATOR_TOKEN", "OPENAI_API_KEY", "deployment", "model", "variant")
MISSING_FACTOR = "owners have no second factor"
"""What `penstock check --deploy` must still say, since a person sets it up in the console."""
CLIENT = """
import json
from openai import OpenAI

call = OpenAI(max_retries=0).chat.completions.with_raw_response.create(
    model="trial", max_tokens=32, stream=True, stream_options={"include_usage": True},
    messages=[{"role": "user", "content": "Good morning"}],
)
chunks = list(call.parse())
usage = chunks[-1].usage
print(json.dumps({"id": call.headers["x-request-id"], "chunks": len(chunks),
                  "output_tokens": usage.completion_tokens}))
"""


@dataclass(frozen=True)
class Customer:
    """What the first day made."""

    organization: str
    operator_token: str
    api_key: str
    deployment: str
    model: str
    variant: str


def run_first_day(installation: Installation) -> Customer:
    """Follow the page on the host; check the invitation's mail, the configuration and a streamed
    chat. Raises PartFailed."""
    customer = follow_page(installation)
    wait_for(lambda: _is_invited(installation), "the owner's invitation by email")
    checked = installation.host.run(f"{ENVIRONMENT}\npenstock check --deploy || true")
    print("penstock check --deploy:", checked.strip(), sep="\n    ", flush=True)
    musts = [line for line in checked.splitlines() if line.startswith("must")]
    if any(MISSING_FACTOR not in line for line in musts):
        raise PartFailed(f"penstock check --deploy finds more than a missing factor: {musts}")
    chat = stream_chat(installation, customer.api_key)
    print(f"    the official client: {chat}", flush=True)
    wait_for(lambda: _booked(installation, chat) is not None, "the chat in the books")
    outcome, tokens, count = _booked(installation, chat) or ("", "", "")
    if (outcome, int(tokens), int(count)) != ("completed", chat["output_tokens"], 1):
        raise PartFailed(f"the books have {outcome}, {tokens} tokens, {count} times: {chat}")
    print(installation.penstock("billing check-integrity").strip().splitlines()[-1], flush=True)
    return customer


def follow_page(installation: Installation) -> Customer:
    """Run all that `docs/operate/first-day.md` tells a reader to paste."""
    shown = ", ".join(f'"{name}": "\'"${name}"\'"' for name in RESULTS)
    script = f"{ENVIRONMENT}\n{Page('first-day').script()}\necho '{{{shown}}}' > {STATE}"
    print(installation.host.run(script, variables=OPERATOR).strip(), flush=True)
    return known_customer(installation)


def known_customer(installation: Installation) -> Customer:
    """Return the customer that an earlier first day made."""
    made = json.loads(installation.host.read(STATE))
    return Customer(*(made[name] for name in RESULTS))


def stream_chat(installation: Installation, api_key: str) -> dict[str, Any]:
    """Stream one chat through TLS with the official client; return its id and its counts."""
    host = installation.host
    certificate = host.root / CERTIFICATE.lstrip("/")
    given = {"OPENAI_API_KEY": api_key, "OPENAI_BASE_URL": API, "SSL_CERT_FILE": str(certificate)}
    variables = ["env", *(f"{name}={value}" for name, value in given.items())]
    command = host.outside([*variables, sys.executable, "-c", CLIENT])
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise PartFailed(f"the official client failed: {ran.stderr.strip()[-2000:]}")
    return json.loads(ran.stdout)


def _is_invited(installation: Installation) -> bool:
    mail = installation.host.run("journalctl --no-pager -q -u mail-server -o cat")
    return "To: owner@acme.example" in mail and "/invitations/" in mail


def _booked(installation: Installation, chat: dict[str, Any]) -> tuple[str, str, str] | None:
    """Return the outcome, output tokens and number of a chat's usage events."""
    rows = installation.sql(BOOKED.format(chat["id"]))
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None

"""aiperf, a load generator: a few requests, whole and streamed, none of which may fail."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import trying

REQUESTS = 4
ASKED = [
    *("--model", trying.MODEL, "--tokenizer", os.environ["TOKENIZER"]),
    *("--url", trying.BASE_URL.removesuffix("/v1"), "--api-key", trying.API_KEY),
    *("--endpoint-type", "chat", "--request-count", str(REQUESTS), "--concurrency", "2"),
    *("--isl", "30", "--osl", "10", "--use-server-token-count", "--ui", "none"),
]


def profile(*more: str) -> dict:
    """Run a profile and return what it measured."""
    aiperf = Path(sys.executable).with_name("aiperf")
    with tempfile.TemporaryDirectory(prefix="aiperf-") as folder:
        command = [str(aiperf), "profile", *ASKED, "--artifact-dir", folder, *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = sorted(Path(folder).rglob("profile_export_aiperf.json"))
        assert found, (done.stdout + done.stderr)[-300:]
        return json.loads(found[0].read_text())


def measured(profile: dict, name: str) -> float:
    """Return the mean of one figure."""
    assert name in profile, f"no {name} among {sorted(profile)}"
    return profile[name]["avg"]


def chat() -> None:
    found = profile()
    assert measured(found, "request_count") == REQUESTS
    assert not found.get("error_request_count"), found["error_request_count"]


def stream() -> None:
    found = profile("--streaming")
    assert measured(found, "request_count") == REQUESTS
    assert measured(found, "time_to_first_token") > 0


trying.try_all(chat, stream)

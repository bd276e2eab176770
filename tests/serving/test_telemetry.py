"""Log lines of the gateway and the fleet: readable or JSON, without the values of variables."""

import json
from collections.abc import Iterator

import pytest
import structlog

from serving.telemetry import configure

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def structlog_as_it_was() -> Iterator[None]:
    kept = structlog.get_config()
    yield
    structlog.configure(**kept)


def fail_with_a_secret_at_hand() -> None:
    prompt = "".join(("what a ", "customer said"))
    try:
        raise RuntimeError(f"broken after {len(prompt)} bytes")
    except RuntimeError:
        structlog.get_logger().exception("request_failed", request_id="r1")


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_traceback_shows_no_local_variables(log_format, capsys) -> None:
    configure(log_format)
    fail_with_a_secret_at_hand()
    out, err = capsys.readouterr()
    assert "RuntimeError: broken after 20 bytes" in err
    assert "what a customer said" not in err
    assert out == ""


def test_a_json_line_holds_the_whole_traceback(capsys) -> None:
    configure("json")
    fail_with_a_secret_at_hand()
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["event"], line["request_id"]) == ("error", "request_failed", "r1")
    assert line["exception"].startswith("Traceback")

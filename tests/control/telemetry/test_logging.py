"""Log lines: no secrets, no content, no flood."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from celery.app import trace
from django.db import OperationalError

from control.telemetry.logging import configure, logging_settings

FORMATS = ["console", "json"]
TASK = {"id": "1", "name": "outbox.deliver"}


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What a process logs in the format of the test."""
    kept = logging.getLogger().handlers[:]
    configure(logging_settings(request.param, debug=False))
    handler = next(each for each in logging.getLogger().handlers if each not in kept)
    assert isinstance(handler, logging.StreamHandler)
    lines = io.StringIO()
    handler.setStream(lines)
    yield lines
    logging.getLogger().handlers[:] = kept


def fail(error: Exception) -> None:
    api_key = "pen_live_hidden"
    try:
        raise error
    except type(error):
        logging.getLogger("django.request").exception("failed %s", "here")
    assert api_key


@pytest.mark.parametrize("stream", FORMATS, indirect=True)
def test_a_traceback_shows_no_local_variables(stream: io.StringIO) -> None:
    fail(RuntimeError("broken"))
    assert "RuntimeError: broken" in stream.getvalue()
    assert "pen_live_hidden" not in stream.getvalue().replace('api_key = "pen_live_hidden"', "")
    assert "locals" not in stream.getvalue()


@pytest.mark.parametrize("stream", FORMATS, indirect=True)
def test_an_outage_is_one_line(stream: io.StringIO) -> None:
    fail(OperationalError("connection refused"))
    assert len(stream.getvalue().splitlines()) == 1
    assert "database_away: failed here" in stream.getvalue()


@pytest.mark.parametrize("stream", ["json"], indirect=True)
def test_json_lines_are_json(stream: io.StringIO) -> None:
    fail(RuntimeError("broken"))
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"]) == ("error", "django.request")


@pytest.mark.parametrize("stream", FORMATS, indirect=True)
@pytest.mark.parametrize(
    "path",
    [
        "/invitations/s3cret",
        "/operators/invitations/s3cret",
        "/accounts/confirm-email/s3cret/",
        "/accounts/password/reset/key/userX-s3cret/?next=/",
    ],
)
def test_a_link_of_a_mail_never_lands_in_the_log(stream: io.StringIO, path: str) -> None:
    logging.getLogger("django.request").error("Internal Server Error: %s", path)
    assert "Internal Server Error: /" in stream.getvalue()
    assert "s3cret" not in stream.getvalue()


@pytest.mark.parametrize("stream", ["json"], indirect=True)
@pytest.mark.parametrize(
    ("line", "context", "is_logged"),
    [
        (trace.LOG_SUCCESS, {"return_value": "None", "runtime": 0.01}, False),
        (trace.LOG_SUCCESS, {"return_value": "0", "runtime": 0.01}, False),
        (trace.LOG_SUCCESS, {"return_value": "3", "runtime": 0.01}, True),
        (trace.LOG_FAILURE, {"description": "raised unexpected", "exc": "ValueError()"}, True),
        (trace.LOG_RETRY, {"exc": "Retry in 5s"}, True),
    ],
)
def test_a_task_that_did_nothing_is_not_logged(
    stream: io.StringIO, line: str, context: dict[str, object], is_logged: bool
) -> None:
    trace.info(line, TASK | context)
    assert ("outbox.deliver" in stream.getvalue()) == is_logged

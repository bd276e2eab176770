"""What is read from addresses that an organization named (its provider's documents and tokens), by
the way out that webhooks use: public addresses only, no redirects, within a time and a size."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

from control.errors import InvalidValue
from control.webhooks.addresses import check_url
from control.webhooks.egress import CONNECT_SECONDS, Deadline, GuardedTransport, failures_told
from control.webhooks.errors import Unreachable

FETCH_SECONDS = 8.0
BODY_BYTES_MAX = 1024 * 1024


class Bounded(httpx.SyncByteStream):
    """The body of an answer, up to so many bytes."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        count = 0
        for part in self._answer.iter_stream():
            count += len(part)
            if count > BODY_BYTES_MAX:
                raise Unreachable(f"the answer has more than {BODY_BYTES_MAX // 1024} KiB")
            yield part

    def close(self) -> None:
        """Hang up."""
        self._answer.close()


class ReadingTransport(GuardedTransport):
    """The guarded way out, whose answers may be read."""

    def body_of(self, answer: httpcore.Response) -> httpx.SyncByteStream:
        """Return the body, bounded."""
        return Bounded(answer)


@contextmanager
def calling(url: str) -> Iterator[dict[str, Any]]:
    """Yield what makes an httpx client that may call an address and its like. Raises InvalidValue
    for an address that nobody may name, and for whatever the call fails by."""
    host = httpx.URL(checked(url)).host
    try:
        with failures_told(FETCH_SECONDS):
            yield {
                "transport": ReadingTransport(Deadline(FETCH_SECONDS)),
                "timeout": httpx.Timeout(FETCH_SECONDS, connect=CONNECT_SECONDS),
                "trust_env": False,
                "follow_redirects": False,
                "headers": {"accept-encoding": "identity"},
            }
    except Unreachable as error:
        raise InvalidValue(f"{host}: {error}.") from error


def checked(url: object) -> str:
    """Return an address that a provider gave, in its normal form. Raises InvalidValue."""
    if not isinstance(url, str) or not url:
        raise InvalidValue("The provider names no such address.")
    return check_url(url)


def fetch(url: str, *, bearer: str = "") -> bytes:
    """Return what an address holds, for who shows a token where it takes one. Raises
    InvalidValue."""
    shown = {"authorization": f"Bearer {bearer}"} if bearer else {}
    with calling(url) as options, httpx.Client(**options) as client:
        answer = client.get(checked(url), headers=shown)
        if answer.status_code != 200:
            raise InvalidValue(f"{answer.url.host} answered {answer.status_code}.")
        return answer.content


def fetch_json(url: str, *, bearer: str = "") -> dict[str, Any]:
    """Return the JSON object that an address holds. Raises InvalidValue."""
    return _object(url, fetch(url, bearer=bearer))


def post_form(
    url: str, form: dict[str, str], *, by: tuple[str, str] | None = None
) -> dict[str, Any]:
    """Send a form, with a name and its secret where they are not in it, and return the JSON object
    of the answer. Raises InvalidValue, with what the provider says is wrong."""
    with calling(url) as options, httpx.Client(**options) as client:
        shown = httpx.BasicAuth(*by) if by else httpx.Auth()
        answer = client.post(checked(url), data=form, auth=shown)
        found = _object(url, answer.content)
        if answer.status_code != 200:
            said = str(found.get("error", answer.status_code))[:100]
            raise InvalidValue(f"The provider refused the sign-in: {said}.")
        return found


def _object(url: str, content: bytes) -> dict[str, Any]:
    host = httpx.URL(url).host
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{host} answered no JSON.") from error
    if not isinstance(found, dict):
        raise InvalidValue(f"{host} answered no JSON object.")
    return found

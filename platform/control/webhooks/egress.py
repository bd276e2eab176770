"""The one way out to addresses that customers chose: HTTPS to public addresses, within a total
time, without redirects, without reading what is answered.

The name is resolved here, each address checked, and the checked address connected to: a name that
means another address a moment later gains nothing. TLS is verified for the name.
"""

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from contextlib import contextmanager
from functools import cache
from threading import Thread
from typing import Any, NamedTuple

import httpcore
import httpx

from control.webhooks.addresses import checked_addresses
from control.webhooks.errors import Unreachable

TOTAL_SECONDS = 10.0
CONNECT_SECONDS = 5.0
Resolve = Callable[[str, int], list[str]]


class Answer(NamedTuple):
    """What is read of an answer: its status, and when it asks to be called again, as it says it."""

    status: int
    retry_after: str = ""


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, seconds: float = TOTAL_SECONDS
) -> Answer:
    """Send a body and return the answer, within `seconds`. Raises Unreachable."""
    deadline = Deadline(seconds)
    timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
    with (
        failures_told(seconds),
        httpx.Client(
            transport=GuardedTransport(deadline),
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
        ) as client,
        client.stream("POST", url, content=body, headers=dict(headers)) as response,
    ):
        return Answer(response.status_code, response.headers.get("retry-after", ""))


@contextmanager
def failures_told(seconds: float) -> Iterator[None]:
    """Turn whatever a call fails by into Unreachable, in words for who chose the address."""
    try:
        yield
    except (httpx.TimeoutException, httpcore.TimeoutException) as error:
        raise Unreachable(f"no answer within {seconds:g} s") from error
    except (httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
        raise Unreachable("the answer was not HTTP") from error
    except (httpcore.NetworkError, httpx.HTTPError, ssl.SSLError) as error:
        raise Unreachable(_words(error)) from error


class Deadline:
    """The end of a call: every step gets what is left."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    def left(self, timeout: float | None = None) -> float:
        """Return the seconds left, at most `timeout`. Raises httpcore.ReadTimeout at the end."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout
        return left if timeout is None else min(left, timeout)


class GuardedTransport(httpx.BaseTransport):
    """httpx over connections that are made to checked addresses only."""

    def __init__(self, deadline: Deadline) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls(), max_connections=1, network_backend=GuardedBackend(deadline)
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request."""
        answer = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(answer.status, headers=answer.headers, stream=self.body_of(answer))

    def body_of(self, answer: httpcore.Response) -> httpx.SyncByteStream:
        """Return what may be read of an answer: nothing, where nobody says otherwise."""
        return Unread(answer)

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()


class Unread(httpx.SyncByteStream):
    """The body of an answer, which nobody reads."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def close(self) -> None:
        """Hang up."""
        self._answer.close()


class GuardedBackend(httpcore.NetworkBackend):
    """Connections to checked addresses, each step within the deadline."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address that answers, of a name whose addresses are all allowed."""
        failure: Exception = Unreachable(f"{host} has no address")
        for address in checked_addresses(host, resolved(host, port, self._deadline.left(timeout))):
            try:
                stream = self._inner.connect_tcp(
                    str(address), port, timeout=self._deadline.left(timeout)
                )
            except httpcore.ConnectError as error:
                failure = error
            else:
                return GuardedStream(stream, self._deadline)
        raise failure


class GuardedStream(httpcore.NetworkStream):
    """A connection whose reads and writes end with the deadline."""

    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what came."""
        return self._inner.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send a buffer."""
        self._inner.write(buffer, self._deadline.left(timeout))

    def close(self) -> None:
        """Hang up."""
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Verify the name and encrypt from here on."""
        stream = self._inner.start_tls(ssl_context, server_hostname, self._deadline.left(timeout))
        return GuardedStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """Return what is known of the connection."""
        return self._inner.get_extra_info(info)


def resolved(host: str, port: int, seconds: float) -> list[str]:
    """Return the addresses of a name. Raises Unreachable, also after `seconds`."""
    answer: Future[list[str]] = Future()

    def ask() -> None:
        try:
            answer.set_result(resolve(host, port))
        except Exception as error:
            answer.set_exception(error)

    # The system's resolver knows no time limit of ours, so it is asked beside.
    Thread(target=ask, name="webhook-resolver", daemon=True).start()
    try:
        return answer.result(seconds)
    except TooLate as error:
        raise Unreachable(f"{host} was not resolved within {seconds:.0f} s") from error
    except (OSError, UnicodeError) as error:  # the second of what is no name at all
        raise Unreachable(f"{host} has no address") from error


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a name, as the system resolves it. Raises OSError, UnicodeError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


@cache
def tls() -> ssl.SSLContext:
    """Return the one TLS context, which trusts what httpx trusts."""
    return httpx.create_ssl_context(trust_env=False)


def _words(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate is not valid: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return "the TLS handshake failed"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused"
        cause = cause.__cause__ or cause.__context__
    return "the connection failed"

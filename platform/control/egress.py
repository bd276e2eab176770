"""Outgoing HTTP to addresses that customers chose: public addresses only, within a total time and
size, without redirects.

The name is resolved here, each address checked, and the checked address connected to: a name that
means another address a moment later gains nothing. TLS is verified for the name. Webhooks `post`
and read no body; identity providers' documents and tokens are read by `fetch` and `post_form`.
"""

import ipaddress
import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from contextlib import contextmanager
from functools import cache
from threading import Thread
from typing import Any, NamedTuple, TypeAlias

import httpcore
import httpx
from django.conf import settings

from control.errors import InvalidValue

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
FORBIDDEN_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # Azure's own services, in a public range
            "192.88.99.0/24",  # 6to4 relays
            "::/96",  # IPv4 in old IPv6 clothes
            "64:ff9b::/96",  # NAT64
            "64:ff9b:1::/48",
            "2001::/32",  # Teredo
            "2002::/16",  # 6to4
            "fec0::/10",  # site-local
        ),
    )
)
"""What Python's `is_global` lets pass and yet may lead into a network behind us."""
LOCAL_NAMES = (
    "localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "localdomain",
    "home.arpa", "onion",
)  # fmt: skip
NAME_MAX = 253
LABEL = re.compile("[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
"""What the domain name system takes between two dots."""
PORT_MIN = 1024
"""Lower ports than this, except the scheme's own, belong to other protocols."""
TOTAL_SECONDS = 10.0
CONNECT_SECONDS = 5.0
Resolve = Callable[[str, int], list[str]]
FETCH_SECONDS = 8.0
BODY_BYTES_MAX = 1024 * 1024
URL_MAX = 2000


class HostUnreachable(Exception):
    """The endpoint was not called, or did not answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AddressForbidden(HostUnreachable):
    """The address leads to a network that webhooks do not go to."""


def check_url(value: str) -> str:
    """Return an address in its normal form. Raises InvalidValue saying what is wrong with it.

    What its host leads to is checked at each connect: names can change what they mean.
    """
    text = value.strip()
    if not text.isprintable() or "\\" in text or " " in text:
        raise _invalid("url must have no blanks, backslashes or control characters.")
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise _invalid("url must be an address: https://example.com/hooks.") from error
    _check_scheme(url)
    if url.userinfo or url.fragment:
        raise _invalid("url must have no user name, password or fragment.")
    _check_host(url.raw_host.decode().rstrip("."))
    own = 443 if url.scheme == "https" else 80
    if url.port is not None and url.port != own and not PORT_MIN <= url.port < 2**16:
        raise _invalid(f"url must have the port {own}, or one from {PORT_MIN} on.")
    if len(str(url)) > URL_MAX:
        raise _invalid(f"url must have at most {URL_MAX} characters, others than ASCII escaped.")
    return str(url)


def require_public(host: str, found: Collection[str]) -> list[Address]:
    """Return what a name resolved to, every one allowed. Raises Forbidden.

    One forbidden address among them is enough: an honest name has none.
    """
    addresses = [ipaddress.ip_address(each.partition("%")[0]) for each in found]
    if not addresses or not all(is_allowed(address) for address in addresses):
        raise AddressForbidden(f"{host} does not lead to a public address")
    return addresses


def is_allowed(address: Address) -> bool:
    """Tell whether webhooks may go to an IP address: a public one, or a network of the setting."""
    plain = getattr(address, "ipv4_mapped", None) or address
    if any(plain in network for network in settings.CONFIG.webhook_networks):
        return True
    if not plain.is_global or plain.is_multicast or plain.is_reserved or plain.is_unspecified:
        return False
    return not any(plain in network for network in FORBIDDEN_NETWORKS)


def _check_scheme(url: httpx.URL) -> None:
    if url.scheme == "https" or (url.scheme == "http" and settings.CONFIG.webhook_http):
        return
    raise _invalid("url must begin with https://.")


def _check_host(host: str) -> None:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        _check_name(host.lower())
    else:
        if not is_allowed(address):
            raise _invalid("url must not lead to a private, local or reserved address.")


def _check_name(name: str) -> None:
    labels = name.split(".")
    try:
        socket.inet_aton(name)
    except OSError:
        is_disguised = False
    else:
        is_disguised = True  # such as 2130706433, 0x7f.1 or 0177.0.0.1
    is_local = any(name == each or name.endswith(f".{each}") for each in LOCAL_NAMES)
    is_name = len(name) <= NAME_MAX and all(map(LABEL.fullmatch, labels))
    if is_disguised or len(labels) < 2 or not is_name or is_local or labels[-1].isdigit():
        raise _invalid("url must have a public host name.")


def _invalid(message: str) -> InvalidValue:
    return InvalidValue(message, param="url")


class EgressResponse(NamedTuple):
    """What is read of an answer: its status, and when it asks to be called again, as it says it."""

    status: int
    retry_after: str = ""


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, seconds: float = TOTAL_SECONDS
) -> EgressResponse:
    """Send a body and return the answer, within `seconds`. Raises Unreachable."""
    deadline = RequestDeadline(seconds)
    timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
    with (
        translate_errors(seconds),
        httpx.Client(
            transport=GuardedTransport(deadline),
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
        ) as client,
        client.stream("POST", url, content=body, headers=dict(headers)) as response,
    ):
        return EgressResponse(response.status_code, response.headers.get("retry-after", ""))


@contextmanager
def translate_errors(seconds: float) -> Iterator[None]:
    """Turn whatever a call fails by into Unreachable, in words for who chose the address."""
    try:
        yield
    except (httpx.TimeoutException, httpcore.TimeoutException) as error:
        raise HostUnreachable(f"no answer within {seconds:g} s") from error
    except (httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
        raise HostUnreachable("the answer was not HTTP") from error
    except (httpcore.NetworkError, httpx.HTTPError, ssl.SSLError) as error:
        raise HostUnreachable(_failure_reason(error)) from error


class RequestDeadline:
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

    def __init__(self, deadline: RequestDeadline) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls_context(), max_connections=1, network_backend=GuardedBackend(deadline)
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
        return UnreadBody(answer)

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()


class UnreadBody(httpx.SyncByteStream):
    """The body of an answer, which nobody reads."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def close(self) -> None:
        """Hang up."""
        self._answer.close()


class GuardedBackend(httpcore.NetworkBackend):
    """Connections to checked addresses, each step within the deadline."""

    def __init__(self, deadline: RequestDeadline) -> None:
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
        failure: Exception = HostUnreachable(f"{host} has no address")
        for address in require_public(
            host, resolve_within(host, port, self._deadline.left(timeout))
        ):
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

    def __init__(self, inner: httpcore.NetworkStream, deadline: RequestDeadline) -> None:
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


def resolve_within(host: str, port: int, seconds: float) -> list[str]:
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
        raise HostUnreachable(f"{host} was not resolved within {seconds:.0f} s") from error
    except (OSError, UnicodeError) as error:  # the second of what is no name at all
        raise HostUnreachable(f"{host} has no address") from error


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a name, as the system resolves it. Raises OSError, UnicodeError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


@cache
def tls_context() -> ssl.SSLContext:
    """Return the one TLS context, which trusts what httpx trusts."""
    return httpx.create_ssl_context(trust_env=False)


def _failure_reason(error: Exception) -> str:
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


class LimitedBody(httpx.SyncByteStream):
    """The body of an answer, up to so many bytes."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        count = 0
        for part in self._answer.iter_stream():
            count += len(part)
            if count > BODY_BYTES_MAX:
                raise HostUnreachable(f"the answer has more than {BODY_BYTES_MAX // 1024} KiB")
            yield part

    def close(self) -> None:
        """Hang up."""
        self._answer.close()


class LimitedTransport(GuardedTransport):
    """The guarded way out, whose answers may be read."""

    def body_of(self, answer: httpcore.Response) -> httpx.SyncByteStream:
        """Return the body, bounded."""
        return LimitedBody(answer)


@contextmanager
def client_options(url: str) -> Iterator[dict[str, Any]]:
    """Yield what makes an httpx client that may call an address and its like. Raises InvalidValue
    for an address that nobody may name, and for whatever the call fails by."""
    host = httpx.URL(require_url(url)).host
    try:
        with translate_errors(FETCH_SECONDS):
            yield {
                "transport": LimitedTransport(RequestDeadline(FETCH_SECONDS)),
                "timeout": httpx.Timeout(FETCH_SECONDS, connect=CONNECT_SECONDS),
                "trust_env": False,
                "follow_redirects": False,
                "headers": {"accept-encoding": "identity"},
            }
    except HostUnreachable as error:
        raise InvalidValue(f"{host}: {error}.") from error


def require_url(url: object) -> str:
    """Return an address that a provider gave, in its normal form. Raises InvalidValue."""
    if not isinstance(url, str) or not url:
        raise InvalidValue("The provider names no such address.")
    return check_url(url)


def fetch(url: str, *, bearer: str = "") -> bytes:
    """Return what an address holds, for who shows a token where it takes one. Raises
    InvalidValue."""
    shown = {"authorization": f"Bearer {bearer}"} if bearer else {}
    with client_options(url) as options, httpx.Client(**options) as client:
        answer = client.get(require_url(url), headers=shown)
        if answer.status_code != 200:
            raise InvalidValue(f"{answer.url.host} answered {answer.status_code}.")
        return answer.content


def fetch_json(url: str, *, bearer: str = "") -> dict[str, Any]:
    """Return the JSON object that an address holds. Raises InvalidValue."""
    return _json_object(url, fetch(url, bearer=bearer))


def post_form(
    url: str, form: dict[str, str], *, by: tuple[str, str] | None = None
) -> dict[str, Any]:
    """Send a form, with a name and its secret where they are not in it, and return the JSON object
    of the answer. Raises InvalidValue, with what the provider says is wrong."""
    with client_options(url) as options, httpx.Client(**options) as client:
        shown = httpx.BasicAuth(*by) if by else httpx.Auth()
        answer = client.post(require_url(url), data=form, auth=shown)
        found = _json_object(url, answer.content)
        if answer.status_code != 200:
            said = str(found.get("error", answer.status_code))[:100]
            raise InvalidValue(f"The provider refused the sign-in: {said}.")
        return found


def _json_object(url: str, content: bytes) -> dict[str, Any]:
    host = httpx.URL(url).host
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{host} answered no JSON.") from error
    if not isinstance(found, dict):
        raise InvalidValue(f"{host} answered no JSON object.")
    return found

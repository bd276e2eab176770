"""HTTP requests to addresses that customers chose: public addresses only, within a total time and
size, without redirects.

The name is resolved here, each address is checked, and the connection goes to the checked address,
so a name that resolves differently a moment later gains nothing. TLS is verified for the name.
Webhooks use `post`, which reads no body; `fetch` and `post_form` read the documents and tokens of
identity providers.
"""

import ipaddress
import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
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
            "::/96",  # IPv4 addresses in an obsolete IPv6 form
            "64:ff9b::/96",  # NAT64
            "64:ff9b:1::/48",
            "2001::/32",  # Teredo
            "2002::/16",  # 6to4
            "fec0::/10",  # site-local
        ),
    )
)
"""Networks that Python's `is_global` allows although they may lead into a private network."""
LOCAL_NAMES = (
    "localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "localdomain",
    "home.arpa", "onion",
)  # fmt: skip
NAME_MAX = 253
LABEL = re.compile("[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
"""One label of a domain name."""
PORT_MIN = 1024
"""Ports below this, except the scheme's own, belong to other protocols."""
TOTAL_SECONDS = 10.0
CONNECT_SECONDS = 5.0
Resolve = Callable[[str, int], list[str]]
FETCH_SECONDS = 8.0
BODY_BYTES_MAX = 1024 * 1024
URL_MAX = 2000


class HostUnreachable(Exception):
    """The endpoint was not called, or did not respond."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AddressForbidden(HostUnreachable):
    """The address leads to a network that outgoing requests must not reach."""


def check_url(value: str) -> str:
    """Return a URL in its normal form. Raises InvalidValue.

    The addresses behind its host are checked at each connect, since a name may resolve differently
    later.
    """
    text = value.strip()
    if not text.isprintable() or "\\" in text or " " in text:
        raise _invalid("url must have no blanks, backslashes or control characters.")
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise _invalid("url must be an address: https://example.com/hooks.") from error
    if url.scheme != "https" and not (url.scheme == "http" and settings.CONFIG.egress_allow_http):
        raise _invalid("url must begin with https://.")
    if url.userinfo or url.fragment:
        raise _invalid("url must have no user name, password or fragment.")
    _check_host(url.raw_host.decode().rstrip("."))
    default_port = 443 if url.scheme == "https" else 80
    if url.port is not None and url.port != default_port and not PORT_MIN <= url.port < 2**16:
        raise _invalid(f"url must have the port {default_port}, or one from {PORT_MIN} on.")
    if len(str(url)) > URL_MAX:
        raise _invalid(f"url must have at most {URL_MAX} characters, others than ASCII escaped.")
    return str(url)


def require_public(host: str, found: Collection[str]) -> list[Address]:
    """Return the addresses that a name resolved to, all of them allowed. Raises AddressForbidden.

    One forbidden address is enough to refuse the name: an honest name has none.
    """
    addresses = [ipaddress.ip_address(each.partition("%")[0]) for each in found]
    if not addresses or not all(is_allowed(address) for address in addresses):
        raise AddressForbidden(f"{host} does not lead to a public address")
    return addresses


def is_allowed(address: Address) -> bool:
    """Return whether an IP address is public or in a network of `egress_allowed_networks`."""
    plain = getattr(address, "ipv4_mapped", None) or address
    if any(plain in network for network in settings.CONFIG.egress_allowed_networks):
        return True
    if not plain.is_global or plain.is_multicast or plain.is_reserved or plain.is_unspecified:
        return False
    return not any(plain in network for network in FORBIDDEN_NETWORKS)


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
    """The status of a response and its `Retry-After` header, unparsed."""

    status: int
    retry_after: str = ""


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, seconds: float = TOTAL_SECONDS
) -> EgressResponse:
    """Send a body and return the response, within `seconds`. Raises HostUnreachable."""
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
    """Turn every error of a call into HostUnreachable, with a reason for the customer who chose the
    address."""
    try:
        yield
    except (httpx.TimeoutException, httpcore.TimeoutException) as error:
        raise HostUnreachable(f"no answer within {seconds:g} s") from error
    except (httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
        raise HostUnreachable("the answer was not HTTP") from error
    except (httpcore.NetworkError, httpx.HTTPError, ssl.SSLError) as error:
        raise HostUnreachable(_failure_reason(error)) from error


class RequestDeadline:
    """The end of a call; each step gets the time that is left."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    def left(self, timeout: float | None = None) -> float:
        """Return the seconds left, at most `timeout`. Raises httpcore.ReadTimeout at the end."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout
        return left if timeout is None else min(left, timeout)


class GuardedTransport(httpx.BaseTransport):
    """An httpx transport that connects to checked addresses only."""

    def __init__(self, deadline: RequestDeadline) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls_context(), max_connections=1, network_backend=GuardedBackend(deadline)
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._pool.handle_request(
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
        return httpx.Response(
            response.status, headers=response.headers, stream=self.body_of(response)
        )

    def body_of(self, response: httpcore.Response) -> httpx.SyncByteStream:
        """Return the readable part of a response's body: none, unless a subclass reads it."""
        return UnreadBody(response)

    def close(self) -> None:
        self._pool.close()


class UnreadBody(httpx.SyncByteStream):
    """The body of a response, which is never read."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def close(self) -> None:
        self._response.close()


class GuardedBackend(httpcore.NetworkBackend):
    """Connects to checked addresses, each step within the deadline."""

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
        """Connect to the first reachable address of a name whose addresses are all allowed."""
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
        """Return up to `max_bytes` received bytes."""
        return self._inner.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._deadline.left(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Verify the name and return the encrypted stream."""
        stream = self._inner.start_tls(ssl_context, server_hostname, self._deadline.left(timeout))
        return GuardedStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """Return information about the connection."""
        return self._inner.get_extra_info(info)


def resolve_within(host: str, port: int, seconds: float) -> list[str]:
    """Return the addresses of a name. Raises HostUnreachable, also after `seconds`."""
    addresses: Future[list[str]] = Future()

    def run() -> None:
        try:
            addresses.set_result(resolve(host, port))
        except Exception as error:
            addresses.set_exception(error)

    # The system's resolver takes no time limit, so it runs in its own thread.
    Thread(target=run, name="webhook-resolver", daemon=True).start()
    try:
        return addresses.result(seconds)
    except FutureTimeout as error:
        raise HostUnreachable(f"{host} was not resolved within {seconds:.0f} s") from error
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid name
        raise HostUnreachable(f"{host} has no address") from error


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a name from the system's resolver. Raises OSError, UnicodeError."""
    results = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in results))


@cache
def tls_context() -> ssl.SSLContext:
    """Return the one TLS context, which trusts the same authorities as httpx."""
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
    """The body of a response, at most `BODY_BYTES_MAX` bytes."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        count = 0
        for part in self._response.iter_stream():
            count += len(part)
            if count > BODY_BYTES_MAX:
                raise HostUnreachable(f"the answer has more than {BODY_BYTES_MAX // 1024} KiB")
            yield part

    def close(self) -> None:
        self._response.close()


class LimitedTransport(GuardedTransport):
    """A guarded transport whose response bodies may be read."""

    def body_of(self, response: httpcore.Response) -> httpx.SyncByteStream:
        """Return the size-limited body."""
        return LimitedBody(response)


@contextmanager
def client_options(url: str) -> Iterator[dict[str, Any]]:
    """Yield the options of an httpx client for a URL. Raises InvalidValue for a URL that is not
    allowed, and for any failure of the call."""
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
    """Return a provider's URL in its normal form. Raises InvalidValue."""
    if not isinstance(url, str) or not url:
        raise InvalidValue("The provider names no such address.")
    return check_url(url)


def fetch(url: str, *, bearer: str = "") -> bytes:
    """Return the content of a URL, with a bearer token where one is given. Raises InvalidValue."""
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    with client_options(url) as options, httpx.Client(**options) as client:
        response = client.get(require_url(url), headers=headers)
        if response.status_code != 200:
            raise InvalidValue(f"{response.url.host} answered {response.status_code}.")
        return response.content


def fetch_json(url: str, *, bearer: str = "") -> dict[str, Any]:
    """Return the JSON object at a URL. Raises InvalidValue."""
    return _json_object(url, fetch(url, bearer=bearer))


def post_form(
    url: str, form: dict[str, str], *, by: tuple[str, str] | None = None
) -> dict[str, Any]:
    """Send a form and return the JSON object of the response. `by` is a client id and its secret
    for basic authentication, where the form does not hold them. Raises InvalidValue with the
    provider's error."""
    with client_options(url) as options, httpx.Client(**options) as client:
        auth = httpx.BasicAuth(*by) if by else httpx.Auth()
        response = client.post(require_url(url), data=form, auth=auth)
        document = _json_object(url, response.content)
        if response.status_code != 200:
            reason = str(document.get("error", response.status_code))[:100]
            raise InvalidValue(f"The provider refused the sign-in: {reason}.")
        return document


def _json_object(url: str, content: bytes) -> dict[str, Any]:
    host = httpx.URL(url).host
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{host} did not answer with JSON.") from error
    if not isinstance(document, dict):
        raise InvalidValue(f"{host} did not answer with a JSON object.")
    return document

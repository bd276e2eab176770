"""Identity providers as processes of their own, and a person who signs in at them without a
browser."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape

import httpx

from tests.support.environment import free_port


@dataclass(frozen=True)
class OidcProvider:
    """`oidc-provider-mock`: whoever is named signs in."""

    url: str

    def know(self, subject: str, **claims: object) -> None:
        """Say what the provider tells of a person."""
        httpx.put(f"{self.url}/users/{subject}", json=claims).raise_for_status()

    def sign_in(self, address: str, subject: str) -> str:
        """Return where the provider sends the browser back to."""
        reply = httpx.post(address, data={"sub": subject})
        assert reply.status_code == 302, reply.text
        return reply.headers["location"]


@dataclass(frozen=True)
class SamlProvider:
    """The provider of `saml_idp`."""

    url: str

    @property
    def metadata_url(self) -> str:
        return f"{self.url}/metadata"

    def sign_in(self, address: str, subject: str, email: str, **fields: str) -> str:
        """Return the answer that the browser posts; fields are `groups`, and `weak` for SHA-1."""
        sent = {"subject": subject, "email": email, **fields}
        reply = httpx.post(address, data=sent)
        found = re.search(r'name="SAMLResponse" value="([^"]+)"', reply.text)
        assert found, reply.text
        return unescape(found[1])


@contextmanager
def running_oidc() -> Iterator[OidcProvider]:
    port = free_port()
    with _process("oidc_provider_mock", "-p", str(port)):
        provider = OidcProvider(f"http://127.0.0.1:{port}")
        _wait_for(f"{provider.url}/.well-known/openid-configuration")
        yield provider


@contextmanager
def running_saml(name: str = "") -> Iterator[SamlProvider]:
    port = free_port()
    with _process("tests.support.saml_idp", str(port), name):
        provider = SamlProvider(f"http://127.0.0.1:{port}")
        _wait_for(provider.metadata_url)
        yield provider


@contextmanager
def _process(module: str, *arguments: str) -> Iterator[None]:
    command = [sys.executable, "-m", module, *arguments]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        try:
            yield
        finally:
            process.terminate()


def _wait_for(url: str) -> None:
    ends_at = time.monotonic() + 30
    while True:
        try:
            return httpx.get(url).raise_for_status() and None
        except httpx.HTTPError:
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.05)

"""The way out: each connect is checked, and nothing that is answered costs more than a moment."""

import dataclasses
import socket
import time
from ipaddress import ip_network
from threading import Event
from types import SimpleNamespace

import pytest

from control import egress
from control.egress import AddressForbidden, HostUnreachable
from tests.fixtures.receiver import Receiver

pytestmark = pytest.mark.integration
HEADERS = {"content-type": "application/json"}


def post(url: str, seconds: float = 30.0) -> int:
    return egress.post(url, b"{}", HEADERS, seconds=seconds).status


def test_an_answer_is_its_status(receiver: Receiver) -> None:
    receiver.status = 204
    assert post(receiver.url) == 204
    assert receiver.told[0].body == b"{}"


def test_without_the_setting_this_machine_is_out_of_reach(receiver: Receiver, settings) -> None:
    settings.CONFIG = dataclasses.replace(settings.CONFIG, egress_allowed_networks=())
    with pytest.raises(AddressForbidden, match="does not lead to a public address"):
        post(receiver.url)
    assert receiver.told == []


def test_a_name_that_changes_its_meaning_gains_nothing(
    receiver: Receiver, settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resolver that says a public address first and the loopback from then on."""
    settings.CONFIG = dataclasses.replace(settings.CONFIG, egress_allowed_networks=())
    asked: list[str] = []
    connected: list[str] = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["93.184.216.34"] if len(asked) == 1 else ["127.0.0.1"]

    def connect(address: tuple[str, int], *_: object, **__: object) -> socket.socket:
        connected.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(egress, "resolve", rebinding)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(HostUnreachable, match="refused"):
        post(f"http://rebind.example:{receiver.port}/")
    # Resolved once, and exactly what was checked was connected to.
    assert (asked, connected) == (["rebind.example"], ["93.184.216.34"])
    with pytest.raises(AddressForbidden):
        post(f"http://rebind.example:{receiver.port}/")
    assert connected == ["93.184.216.34"]


def test_redirects_are_answers_not_directions(receiver: Receiver) -> None:
    receiver.status = 302
    receiver.headers["location"] = "http://169.254.169.254/"
    assert post(receiver.url) == 302
    assert len(receiver.told) == 1


def test_an_endless_body_is_not_read(receiver: Receiver) -> None:
    receiver.endless = True
    assert post(receiver.url, seconds=30) == 200  # it would be no answer, were the body read


@pytest.mark.parametrize("how", ["silent", "drips"])
def test_a_slow_answer_ends_with_the_total_time(
    receiver: Receiver, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "resolve_within", lambda host, *_: [host])  # takes none of it
    receiver.delay_seconds = 120 if how == "silent" else 0
    receiver.drips = how == "drips"
    began = time.monotonic()
    with pytest.raises(HostUnreachable, match=r"no answer within 0\.2 s"):
        post(receiver.url, seconds=0.2)
    assert time.monotonic() - began < 60


def test_a_resolver_that_hangs_ends_with_the_total_time(
    local: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = Event()
    # All of the time is left when the resolver is asked, however long it took to come so far.
    monkeypatch.setattr(egress, "time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(egress, "resolve", lambda *_: ended.wait(60))
    try:
        with pytest.raises(HostUnreachable, match="was not resolved"):
            post("http://slow.example/", seconds=0.2)
    finally:
        ended.set()


def test_what_is_not_there_is_said_in_words(local: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostUnreachable, match="the connection was refused"):
        post("http://127.0.0.1:1/")

    def unknown(*_: object) -> list[str]:
        raise socket.gaierror

    with pytest.raises(HostUnreachable, match=r"a+\.example has no address"):
        post(f"http://{'a' * 64}.example/")
    monkeypatch.setattr(egress, "resolve", unknown)
    with pytest.raises(HostUnreachable, match=r"nowhere\.example has no address"):
        post("http://nowhere.example/")


def test_tls_is_verified(receiver: Receiver) -> None:
    with pytest.raises(HostUnreachable, match="TLS handshake failed"):
        post(receiver.url.replace("http://", "https://"))


def test_no_proxy_of_the_environment_is_asked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    assert post(receiver.url) == 200


def test_an_ipv6_address_in_the_networks_is_connected_to(settings) -> None:
    settings.CONFIG = dataclasses.replace(
        settings.CONFIG, egress_allow_http=True, egress_allowed_networks=(ip_network("::1/128"),)
    )
    with pytest.raises(HostUnreachable, match="the connection"):
        post("http://[::1]:1/")

"""A client's address, from whatever names it."""

from ipaddress import ip_address, ip_network

import pytest

from serving.contract.client_address import client_address, forwarded_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.7", "192.0.2.7"),
        (" 192.0.2.7 ", "192.0.2.7"),
        ("192.0.2.7:55555", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("[::ffff:192.0.2.7]:55555", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("[2001:db8::7]:55555", "2001:db8::7"),
        ("fe80::1%eth0", "fe80::1"),
        ("", None),
        ("unknown", None),
        ("_hidden:80", None),
        ("192.0.2.7.8", None),
        ("[", None),
    ],
)
def test_it_is_read_without_what_is_no_part_of_it(text: str, address: str | None) -> None:
    assert client_address(text) == (None if address is None else ip_address(address))


TRUSTED = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.7", ["198.51.100.1"], "192.0.2.7"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.7"], "192.0.2.7"),
        ("::ffff:10.0.0.1", ["192.0.2.7:80"], "192.0.2.7"),
        ("10.0.0.1", ["198.51.100.1, 192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["198.51.100.1", "192.0.2.7, [fd00::1]:80"], "192.0.2.7"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["192.0.2.7, unknown"], None),
        ("10.0.0.1", [""], None),
    ],
)
def test_only_what_trusted_proxies_say_counts(
    peer: str, forwarded: list[str], client: str | None
) -> None:
    found = forwarded_address(peer, forwarded, TRUSTED)
    assert found == (None if client is None else ip_address(client))

"""Where webhooks may go: public addresses over TLS, whatever an address is dressed as."""

import dataclasses
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.egress import AddressForbidden, check_url, is_allowed, require_public
from control.errors import InvalidValue

pytestmark = pytest.mark.unit
HOSTILE = [
    "", " ", "example.com", "//example.com", "https://", "https:///hooks", "javascript:alert(1)",
    "file:///etc/passwd", "ftp://example.com", "gopher://example.com", "http://example.com",
    "https://localhost", "https://LOCALHOST/", "https://localhost.", "https://foo.localhost",
    "https://127.0.0.1", "https://127.1", "https://0.0.0.0", "https://0", "https://2130706433",
    "https://0x7f000001", "https://0x7f.0.0.1", "https://0177.0.0.1", "https://017700000001",
    "https://127.0.0.1.", "https://10.0.0.1", "https://172.16.0.1", "https://192.168.1.1",
    "https://100.64.0.1", "https://169.254.169.254/latest/meta-data", "https://168.63.129.16",
    "https://224.0.0.1", "https://255.255.255.255", "https://240.0.0.1", "https://198.18.0.1",
    "https://192.0.2.1", "https://[::1]", "https://[::]", "https://[::ffff:127.0.0.1]",
    "https://[::ffff:7f00:1]", "https://[::127.0.0.1]", "https://[fe80::1]", "https://[fc00::1]",
    "https://[fd00:ec2::254]", "https://[ff02::1]", "https://[64:ff9b::7f00:1]",
    "https://[2002:7f00:1::]", "https://[2001:0:7f00:1::]", "https://[fec0::1]",
    "https://[2001:db8::1]", "https://user@example.com", "https://user:pw@example.com",
    "https://example.com@127.0.0.1", "https://example.com#x", "https://example.com:22",
    "https://example.com:25", "https://example.com:0", "https://example.com:99999",
    "https://example.com:80", "https://db.internal", "https://printer.local", "https://intranet",
    "https://exa mple.com", "https://example.com\r\nhost: evil", "https://example.com/\x00",
    "https://example.com\\@127.0.0.1", "https://\u202eexample.com", "https://.com", "https://a..b",
    "https://①②⑦.⓪.⓪.①", "https://" + "a" * 2000 + ".com", "https://[::1%25eth0]",
    "https://metadata.google.internal/", "https://" + "a" * 64 + ".com",
    "https://" + "ab." * 90 + "com", "https://ex%20ample.com", "https://*.example.com",
    "https://-example.com", "https://example.com/" + "é" * 400,
]  # fmt: skip
FINE = [
    "https://example.com", "https://example.com/hooks?token=1", "https://hooks.example.com:8443/x",
    "https://93.184.216.34/hook", "https://[2606:2800:220:1:248:1893:25c8:1946]/hook",
    "https://bücher.example/haken", "https://example.com:443/",
]  # fmt: skip


@pytest.mark.parametrize("url", HOSTILE)
def test_what_is_no_public_https_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue) as error:
        check_url(url)
    assert error.value.param == "url"


@pytest.mark.parametrize("url", FINE)
def test_public_addresses_are_taken(url: str) -> None:
    assert check_url(url).startswith("https://")


@pytest.mark.parametrize(
    "found",
    [
        [],
        ["127.0.0.1"],
        ["93.184.216.34", "127.0.0.1"],
        ["10.1.2.3"],
        ["169.254.169.254"],
        ["::ffff:10.0.0.1"],
        ["fe80::1%eth0"],
        ["0.0.0.0"],  # noqa: S104 - an answer of a resolver
    ],
)
def test_a_name_with_one_forbidden_address_leads_nowhere(found: list[str]) -> None:
    with pytest.raises(AddressForbidden):
        require_public("example.com", found)


@given(st.ip_addresses())
def test_no_address_behind_us_is_allowed_in_any_clothes(address) -> None:
    """Python's own judgement of the address, and of the IPv4 address inside it, is the measure."""
    inner = [address]
    if address.version == 6:
        inner += [each for each in (address.ipv4_mapped, address.sixtofour) if each]
        inner += list(address.teredo or ())
    if any(not each.is_global or each.is_multicast for each in inner):
        assert not is_allowed(address)


@given(st.ip_addresses(v=4, network="10.0.0.0/8") | st.ip_addresses(v=4, network="127.0.0.0/8"))
def test_a_private_address_is_not_allowed_in_ipv6_clothes(address) -> None:
    number = int(address)
    for prefix in ("::ffff:0:0", "::", "64:ff9b::"):
        assert not is_allowed(ip_address(int(ip_address(prefix)) | number))
    assert not is_allowed(ip_address((0x2002 << 112) | (number << 80)))


def test_an_operator_may_open_a_network(settings) -> None:
    networks = (ip_network("10.0.0.0/8"),)
    settings.CONFIG = dataclasses.replace(settings.CONFIG, egress_allowed_networks=networks)
    assert is_allowed(ip_address("10.1.2.3"))
    assert is_allowed(ip_address("::ffff:10.1.2.3"))
    assert not is_allowed(ip_address("192.168.1.1"))
    assert check_url("https://10.1.2.3/hook")


def test_http_needs_the_setting(settings) -> None:
    settings.CONFIG = dataclasses.replace(settings.CONFIG, egress_allow_http=True)
    assert check_url("http://example.com/hook")
    with pytest.raises(InvalidValue):
        check_url("http://127.0.0.1/hook")

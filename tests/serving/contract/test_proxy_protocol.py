"""Whose connection a balancer passes on, in the words of the PROXY protocol."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.proxy_protocol import (
    SIGNATURE,
    V2_BYTES_MAX,
    NotProxied,
    begins_with_proxy_header,
    read_proxy_header,
)

V4 = bytes.fromhex("c0000207 0a000001 d903 01bb")
V6 = bytes.fromhex("20010db8" + "0" * 23 + "7" + "0" * 31 + "1" + "d903" + "01bb")


def v2(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + bytes((command, family)) + len(body).to_bytes(2, "big") + body


CASES = [
    (v2(0x21, 0x11, V4), ("192.0.2.7", 55_555)),
    (v2(0x21, 0x11, V4 + b"\x04\x00\x01x"), ("192.0.2.7", 55_555)),
    (v2(0x21, 0x21, V6), ("2001:db8::7", 55_555)),
    (v2(0x20, 0x00, b""), None),
    (v2(0x21, 0x11, V4.ljust(V2_BYTES_MAX - 16)), ("192.0.2.7", 55_555)),
    (v2(0x21, 0x31, b"/" * 216), None),
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 55555 443\r\n", ("192.0.2.7", 55_555)),
    (b"PROXY TCP6 2001:db8::7 ::1 55555 443\r\n", ("2001:db8::7", 55_555)),
    (b"PROXY UNKNOWN\r\n", None),
]


@pytest.mark.parametrize(("header", "client"), CASES)
def test_a_header_is_read_however_it_is_cut(header: bytes, client: tuple[str, int] | None) -> None:
    for cut in range(len(header)):
        assert read_proxy_header(header[:cut]) is None
    assert read_proxy_header(header + b"GET / HTTP/1.1") == (client, len(header))
    assert begins_with_proxy_header(header)
    assert not begins_with_proxy_header(b"GET / HTTP/1.1")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\r\n\r\n\x00\r\nQUIX",
        v2(0x11, 0x11, V4),
        v2(0x21, 0x11, V4[:8]),
        v2(0x21, 0x11, bytes(V2_BYTES_MAX - 15))[:16],
        b"PROXY TCP4 nobody 10.0.0.1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7\r\n",
        b"PROXY " + b"x" * 120,
    ],
)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(NotProxied):
        read_proxy_header(data)


@given(st.binary(max_size=200), st.sampled_from([b"", SIGNATURE, b"PROXY TCP4 "]))
def test_nothing_else_is_raised(data: bytes, begin: bytes) -> None:
    try:
        found = read_proxy_header(begin + data)
    except NotProxied:
        return
    assert found is None or found.size <= len(begin + data)

"""What control is told of a key and its answer: digests and seals that tell nothing and fit one
thing alone."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.idempotency import SEALED_BYTES_MAX
from serving.gateway.idempotency.keys import (
    HERE_BYTES_MAX,
    DecryptionFailed,
    IdempotentRequest,
    StoredResponse,
    read_keyed_request,
    seal,
    unseal,
)

PEPPER = b"test-key-pepper-0123456789"
EVENT = "0199a000-0000-7000-8000-000000000000"
KEY = bytes(range(32))


async def wish(
    *,
    key: str = "order-17",
    organization_id: str = "org_a",
    path: str = "/v1/chat/completions",
    body: tuple[bytes, ...] = (b"{}",),
    pepper: bytes = PEPPER,
) -> IdempotentRequest:
    return await read_keyed_request(
        pepper, key=key, organization_id=organization_id, path=path, body=body
    )


async def test_a_body_in_pieces_is_the_same_body() -> None:
    large = b"x" * (HERE_BYTES_MAX + 1)
    for body in (b'{"a": 1}', large):
        assert await wish(body=(body,)) == await wish(body=(body[:3], body[3:]))
    assert (await wish(body=(large,))) != await wish(body=(large + b"y",))


async def test_whatever_differs_differs() -> None:
    base = await wish()
    assert (await wish(body=(b"{} ",))).key_digest == base.key_digest
    assert (await wish(body=(b"{} ",))).request_digest != base.request_digest
    assert (await wish(path="/v1/responses")).request_digest != base.request_digest
    for other in (
        await wish(key="order-18"),
        await wish(organization_id="org_b"),
        await wish(pepper=b"another pepper, 0123456789"),
    ):
        assert other.key_digest != base.key_digest
        assert other.seal != base.seal


@given(st.binary(max_size=10_000), st.lists(st.tuples(st.binary(max_size=20), st.binary())))
def test_what_is_sealed_comes_back(body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    answer = StoredResponse(tuple(headers), body)
    sealed = seal(answer, key=KEY, event_id=EVENT)
    assert sealed is not None
    assert unseal(sealed, key=KEY, event_id=EVENT) == answer
    assert len(body) < 20 or body not in sealed


def test_a_seal_fits_its_event_and_key_alone() -> None:
    sealed = seal(StoredResponse((), b"secret"), key=KEY, event_id=EVENT)
    assert sealed is not None
    for other in (
        {"key": bytes(32), "event_id": EVENT},
        {"key": KEY, "event_id": EVENT.replace("8000", "8001")},
    ):
        with pytest.raises(DecryptionFailed):
            unseal(sealed, **other)  # type: ignore[arg-type]
    flipped = sealed[:20] + bytes([sealed[20] ^ 1]) + sealed[21:]
    for damaged in (b"", sealed[:-1], flipped):
        with pytest.raises(DecryptionFailed):
            unseal(damaged, key=KEY, event_id=EVENT)


def test_two_seals_of_one_answer_differ() -> None:
    answer = StoredResponse((), b"the same")
    assert seal(answer, key=KEY, event_id=EVENT) != seal(answer, key=KEY, event_id=EVENT)


def test_a_stream_shrinks_and_noise_beyond_the_bound_is_not_kept() -> None:
    chunk = b'data: {"id":"chatcmpl-1","choices":[{"delta":{"content":"a"}}]}\n\n'
    stream = seal(StoredResponse((), chunk * 10_000), key=KEY, event_id=EVENT)
    assert stream is not None
    assert len(stream) < len(chunk) * 10_000 / 10
    noise = random.Random(7).randbytes(SEALED_BYTES_MAX + 1)
    assert seal(StoredResponse((), noise), key=KEY, event_id=EVENT) is None

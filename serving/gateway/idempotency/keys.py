"""What control learns of an idempotency key: digests of it and of the request, and the answer
packed, encrypted, and bound to the event that was charged for it."""

import asyncio
import hmac
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from serving.contract.idempotency import HEADER, SEALED_BYTES_MAX
from serving.gateway.errors import BadRequest

CHARACTERS_MAX = 255
HERE_BYTES_MAX = 256 * 1024
"""A body up to here is digested on the loop, in a fifth of a millisecond."""


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A key, and the request that it stands for. `seal` is what its answer is encrypted with: of
    the pepper, the organization and the key itself, so that a database with the pepper beside it
    still tells nothing."""

    key_digest: str
    request_digest: str
    seal: bytes


async def read_keyed_request(
    pepper: bytes, *, key: str, organization_id: str, path: str, body: Sequence[bytes]
) -> IdempotentRequest:
    """Return what a request wishes. Raises BadRequest for what is no key."""
    _check(key)
    whose = f"{organization_id}\0{key}"
    digest = hmac.new(pepper, f"idempotent request\0{path}\0".encode(), "sha256")
    if sum(map(len, body)) <= HERE_BYTES_MAX:
        _add(digest, body)
    else:
        await asyncio.to_thread(_add, digest, body)
    return IdempotentRequest(
        key_digest=hmac.digest(pepper, f"idempotency key\0{whose}".encode(), "sha256").hex(),
        request_digest=digest.hexdigest(),
        seal=hmac.digest(pepper, f"idempotent answer\0{whose}".encode(), "sha256"),
    )


def _check(key: str) -> None:
    if not 0 < len(key) <= CHARACTERS_MAX or not (key.isascii() and key.isprintable()):
        message = f"The header '{HEADER}' must have 1 to {CHARACTERS_MAX} printable characters."
        raise BadRequest(message, code="invalid_value", param=HEADER)


def _add(digest: hmac.HMAC, body: Sequence[bytes]) -> None:
    for piece in body:
        digest.update(piece)


NONCE_BYTES = 12
PACKING = 1
"""Of zlib, the fastest: a stream of tokens shrinks to a tenth by it."""


class StoredResponse(msgspec.Struct, frozen=True):
    """A 200: what stands in its head besides our own, and its body."""

    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class DecryptionFailed(Exception):
    """What was kept cannot be read: it was sealed with another pepper."""


def seal(answer: StoredResponse, *, key: bytes, event_id: str) -> bytes | None:
    """Return the answer as it is kept; None when that is too long."""
    packed = zlib.compress(msgspec.msgpack.encode(answer), PACKING)
    nonce = secrets.token_bytes(NONCE_BYTES)
    sealed = nonce + AESGCM(key).encrypt(nonce, packed, event_id.encode())
    return sealed if len(sealed) <= SEALED_BYTES_MAX else None


def unseal(sealed: bytes, *, key: bytes, event_id: str) -> StoredResponse:
    """Return the answer that was kept. Raises SealBroken."""
    nonce, rest = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        packed = AESGCM(key).decrypt(nonce, rest, event_id.encode())
    except (InvalidTag, ValueError) as error:
        raise DecryptionFailed from error
    return msgspec.msgpack.decode(zlib.decompress(packed), type=StoredResponse)

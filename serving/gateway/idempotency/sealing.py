"""An answer as it is kept: packed, encrypted, and bound to the event that was charged for it."""

import secrets
import zlib

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from serving.contract.idempotency import SEALED_BYTES_MAX

NONCE_BYTES = 12
PACKING = 1
"""Of zlib, the fastest: a stream of tokens shrinks to a tenth by it."""


class Answer(msgspec.Struct, frozen=True):
    """A 200: what stands in its head besides our own, and its body."""

    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class SealBroken(Exception):
    """What was kept cannot be read: it was sealed with another pepper."""


def seal(answer: Answer, *, key: bytes, event_id: str) -> bytes | None:
    """Return the answer as it is kept; None when that is too long."""
    packed = zlib.compress(msgspec.msgpack.encode(answer), PACKING)
    nonce = secrets.token_bytes(NONCE_BYTES)
    sealed = nonce + AESGCM(key).encrypt(nonce, packed, event_id.encode())
    return sealed if len(sealed) <= SEALED_BYTES_MAX else None


def unseal(sealed: bytes, *, key: bytes, event_id: str) -> Answer:
    """Return the answer that was kept. Raises SealBroken."""
    nonce, rest = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        packed = AESGCM(key).decrypt(nonce, rest, event_id.encode())
    except (InvalidTag, ValueError) as error:
        raise SealBroken from error
    return msgspec.msgpack.decode(zlib.decompress(packed), type=Answer)

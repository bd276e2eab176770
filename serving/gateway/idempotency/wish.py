"""What a client asks for by an idempotency key, as digests: control learns neither key nor body."""

import asyncio
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from serving.gateway.errors import BadRequest

HEADER = "Idempotency-Key"
CHARACTERS_MAX = 255
HERE_BYTES_MAX = 256 * 1024
"""A body up to here is digested on the loop, in a fifth of a millisecond."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A key, and the request that it stands for. `seal` is what its answer is encrypted with: of
    the pepper, the organization and the key itself, so that a database with the pepper beside it
    still tells nothing."""

    key_digest: str
    request_digest: str
    seal: bytes


async def read_wish(
    pepper: bytes, *, key: str, organization_id: str, path: str, body: Sequence[bytes]
) -> Wish:
    """Return what a request wishes. Raises BadRequest for what is no key."""
    _check(key)
    whose = f"{organization_id}\0{key}"
    digest = hmac.new(pepper, f"idempotent request\0{path}\0".encode(), "sha256")
    if sum(map(len, body)) <= HERE_BYTES_MAX:
        _add(digest, body)
    else:
        await asyncio.to_thread(_add, digest, body)
    return Wish(
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

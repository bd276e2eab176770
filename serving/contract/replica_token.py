"""The tokens that a replica's node wants of gateways and of the fleet.

A token is an HMAC of the root secret and the replica's id, so that the fleet stores none. Gateways
don't hold the root: the replica feed gives each its own copy, sealed with the credential that it
showed, and the copy on the gateway's disk stays sealed.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence

from serving.contract.credential import Role

MARK_BYTES = 6


class ReplicaTokens:
    """Derives tokens from the first of `roots`, and finds those of earlier roots again.

    A `mark` names the root that a replica was started with and says nothing of the root itself.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = {_mark(root): root for root in reversed(roots)}
        self.mark = _mark(roots[0])

    def token(self, role: Role, replica_id: str, mark: str = "") -> str:
        """Return the token of a role: that of the current root where the mark is unknown."""
        root = self._roots.get(mark, self._roots[self.mark])
        return _text(_mac(root, f"replica {role} {replica_id}"))


def seal(credential: str, replica_id: str, token: str) -> str:
    """Return a token that only a holder of the credential can read.

    The pad is used for one token alone: a replica's token never changes.
    """
    return _text(_padded(credential, replica_id, _bytes(token)))


def unseal(credential: str, replica_id: str, sealed: str) -> str:
    """Return the token that was sealed; empty where `sealed` is no sealed token."""
    try:
        return _text(_padded(credential, replica_id, _bytes(sealed)))
    except ValueError:
        return ""


def credential_mark(credential: str) -> str:
    """Return a name for a credential, which tells nothing of it: what was sealed with another
    credential is of no use to its holder."""
    return _mark(credential)


def _padded(credential: str, replica_id: str, data: bytes) -> bytes:
    pad = _mac(credential, f"seal {replica_id}")
    return bytes(a ^ b for a, b in zip(data, pad, strict=True))


def _mac(key: str, message: str) -> bytes:
    return hmac.digest(key.encode(), b"penstock " + message.encode(), "sha256")


def _mark(secret: str) -> str:
    return _mac(secret, "mark").hex()[: 2 * MARK_BYTES]


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))

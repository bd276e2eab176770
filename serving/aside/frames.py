"""What passes between a process and the one that started it: a pickled message, and bytes with it.

Both ends are this program, and the socket between them is theirs alone. The bytes go as they are,
piece by piece: copying megabytes at once would hold the loop.
"""

import pickle
import struct
from typing import Any

_LENGTHS = struct.Struct(">QQ")
HEAD_BYTES = _LENGTHS.size


def pack(message: Any, payload_bytes: int) -> bytes:
    """Return a message, its length and the payload's before it."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTHS.pack(len(data), payload_bytes) + data


def lengths(head: bytes) -> tuple[int, int]:
    """Return how long the message after its head is, and the payload after that."""
    message_bytes, payload_bytes = _LENGTHS.unpack(head)
    return message_bytes, payload_bytes


def unpack(data: bytes) -> Any:
    """Return the message."""
    return pickle.loads(data)  # noqa: S301 -- from a child of our own

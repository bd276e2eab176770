"""`python -m serving.gateway.finishing`: long answers made in a process of their own."""

import os

from serving.engine.errors import InvalidEngineResponse
from serving.gateway.finishing.questions import Begun, Broken, Reply, Took
from serving.offload.worker import serve

SECONDS_MAX = 60.0
"""More than a gateway waits."""
MEMORY_BYTES = 2 * 1024**3
NICENESS = 5
"""Who shares the machine goes first: no engine waits for a body, and few clients do for long."""


def finish(begun: Begun, payload: bytes) -> tuple[Reply, bytes]:
    """Read an answer to its end, and return the client's body."""
    try:
        return _finish(begun, payload)
    except InvalidEngineResponse as broken:
        return Broken(str(broken)), b""


def _finish(begun: Begun, payload: bytes) -> tuple[Reply, bytes]:
    reading, rendering = begun.reading, begun.rendering
    events = reading.feed(payload)
    if rendering is None:
        reading.end()
        return Took(reading.tokens), b""
    rendering.take(events)
    reading.end()
    return Took(reading.tokens), rendering.end(reading.tokens)


if __name__ == "__main__":
    os.nice(NICENESS)
    serve(finish, seconds_max=SECONDS_MAX, memory_bytes=MEMORY_BYTES)

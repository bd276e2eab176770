"""`python -m tests.support.aside`: a process beside the loop that does as it is told."""

import os
import time
from typing import Any

from serving.aside.serve import serve

MEMORY_BYTES = 512 * 1024 * 1024


def answer(message: Any, payload: bytes) -> tuple[Any, bytes]:
    """Echo, or misbehave: `sleep`, `die`, `grow`, `break`."""
    match message:
        case "sleep":
            time.sleep(60)
        case "die":
            os._exit(3)
        case "grow":
            return len(bytearray(2 * MEMORY_BYTES)), b""
        case "break":
            raise RuntimeError(payload.decode())
    return (message, os.getpid()), payload


if __name__ == "__main__":
    serve(answer, seconds_max=5.0, memory_bytes=MEMORY_BYTES)

"""`python -m serving.offload.worker MODULE:FUNCTION`: the inside of a worker process, which answers
one message after another. The function calls `serve`."""

import resource
import signal
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from serving.offload.process import HEAD_BYTES, lengths, pack, unpack

READY = "ready"
"""Said before the first question."""

Answer = Callable[[Any, bytes], tuple[Any, bytes]]
"""From a message and its payload to both of the reply."""


def serve(answer: Answer, *, seconds_max: float, memory_bytes: int) -> None:
    """Answer on the socket that is standard input, until whoever asks is gone.

    More memory than `memory_bytes` is not given, and work of longer than `seconds_max` ends the
    process, should nobody be left to do so.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = socket.socket(fileno=sys.stdin.fileno())
    source = line.makefile("rb")
    try:
        _tell(line, READY, b"")
        while head := source.read(HEAD_BYTES):
            message_bytes, payload_bytes = lengths(head)
            message = unpack(source.read(message_bytes))
            payload = source.read(payload_bytes)
            signal.setitimer(signal.ITIMER_REAL, seconds_max)
            reply = answer(message, payload)
            signal.setitimer(signal.ITIMER_REAL, 0)
            _tell(line, *reply)
    except ConnectionError:
        return
    except Exception as error:
        # Its words may hold what a client wrote.
        sys.exit(f"worker: {type(error).__name__}")


def _tell(line: socket.socket, message: Any, payload: bytes) -> None:
    line.sendall(pack(message, len(payload)))
    line.sendall(payload)


def main() -> None:
    """Run the function by the name of its module, by which its messages are pickled too."""
    module, _, function = sys.argv[1].partition(":")
    getattr(import_module(module), function)()


if __name__ == "__main__":
    main()

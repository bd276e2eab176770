"""Server-sent events as bytes, however they are cut; in time linear in what came."""

from serving.engine.errors import AnswerBroken

EVENT_BYTES_MAX = 8 * 1024 * 1024
"""An echoed prompt comes in one event together with its token ids."""

DATA = b"data: "
BOUNDARY = b"\n\n"


class Splitter:
    """Cuts a stream into the data of its events; keeps the unfinished rest, up to 8 MB.

    Lines may end in `\\r\\n`: every `\\r` is dropped as it comes, since JSON holds none as it is.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of the events that this completes. Raises AnswerBroken."""
        if b"\r" in data:
            data = data.replace(b"\r", b"")
        if self._parts:
            if BOUNDARY not in self._parts[-1][-1:] + data:
                self._keep(data)
                return []
            data = b"".join([*self._parts, data])
            self._parts.clear()
            self._size = 0
        *events, rest = data.split(BOUNDARY)
        self._keep(rest)
        if data.count(b"\n") == len(events) * len(BOUNDARY):
            return [_data_of_line(event) for event in events]
        return [_data(event) for event in events]

    def _keep(self, data: bytes) -> None:
        if not data:
            return
        self._size += len(data)
        if self._size > EVENT_BYTES_MAX:
            raise AnswerBroken("an event is larger than 8 MB")
        self._parts.append(data)


def _data_of_line(event: bytes) -> bytes:
    return event[len(DATA) :] if event.startswith(DATA) else _data(event)


def _data(event: bytes) -> bytes:
    """Return the data of an event, nothing when it holds none."""
    lines = event.split(b"\n")
    data = [line[len(b"data:") :] for line in lines if line.startswith(b"data:")]
    return b"\n".join(line.removeprefix(b" ") for line in data)

"""One request's way out: tokens to frames, frames to the connection, the fault on the way."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from serving.engine.simulated.embedding import EmbeddingWireFormat
from serving.engine.simulated.engine import GenerationRun, SimulatedEngine
from serving.engine.simulated.settings import Fault
from serving.engine.simulated.wire import VllmWireFormat, error_of, stream_error


class StreamSink(Protocol):
    """The connection, as an exchange needs it."""

    def reply(self, status: int, body: bytes) -> None:
        """Send a whole answer."""

    def open_stream(self) -> None:
        """Send the head of a stream."""

    def send(self, data: bytes) -> None:
        """Send a part of the stream."""

    def close_stream(self) -> None:
        """End the stream in good order."""

    def abort(self) -> None:
        """Drop the connection."""


class SimulatedResponse:
    """Carries a run to its client; an `ResponseWriter` of the engine."""

    def __init__(
        self,
        engine: SimulatedEngine,
        sink: StreamSink,
        run: GenerationRun,
        wire: VllmWireFormat | EmbeddingWireFormat,
        fault: Fault | None,
    ) -> None:
        self.engine = engine
        self.sink = sink
        self.run = run
        self.wire = wire
        self.fault = fault
        self.stream = wire if isinstance(wire, VllmWireFormat) and run.request.is_stream else None
        self._frames: list[bytes] = []
        self._chunks = 0

    @property
    def wants_tokens(self) -> bool:
        """Whether tokens matter one by one: to a stream, and to a fault among them."""
        return self.stream is not None or self.fault is not None

    def begin(self) -> None:
        """Open the stream; a fault after 0 chunks strikes here, before a word is said."""
        if self.stream is not None:
            self.sink.open_stream()
        self._apply_fault()
        if self.stream is not None and self.run in self.engine.running:
            self._frames.append(self.stream.opening())

    def token(self, choice: int, index: int) -> None:
        """Note one token's chunk."""
        if self.run not in self.engine.running:
            return
        if self.stream is not None and (frame := self.stream.token(choice, index)):
            self._frames.append(frame)
        self._chunks += 1
        self._apply_fault()

    def flush(self) -> None:
        """Send what has gathered, as one write."""
        if self._frames:
            self.sink.send(b"".join(self._frames))
            self._frames.clear()

    def finish(self) -> None:
        """End the answer."""
        if self.stream is not None:
            self.sink.send(self.stream.closing())
            self.sink.close_stream()
        else:
            self.sink.reply(200, self.wire.whole())

    def _apply_fault(self) -> None:
        if self.fault is None or self._chunks < self.fault.after_chunks:
            return
        fault, self.fault = self.fault, None
        strike = _STRIKES.get(fault.kind)
        if strike is not None:
            strike(self, fault)

    def die(self, _: Fault) -> None:
        """Drop the connection in the middle."""
        self.flush()
        self.engine.cancel(self.run)
        self.sink.abort()

    def end_with_error(self, fault: Fault) -> None:
        """End as a vLLM whose core died: looking finished; or, with a 4xx, as one that refuses."""
        self.flush()
        self.engine.cancel(self.run)
        if self.stream is not None:
            self.sink.send(stream_error(fault.status))
            self.sink.close_stream()
        else:
            self.sink.reply(fault.status, error_of(fault.status))

    def stall(self, fault: Fault) -> None:
        """Make no more tokens, for a while or for ever."""
        self.run.is_stalled = True
        if fault.seconds:
            loop = asyncio.get_running_loop()
            loop.call_later(fault.seconds, self.engine.resume, self.run)


_STRIKES: dict[str, Callable[[SimulatedResponse, Fault], None]] = {
    "die": SimulatedResponse.die,
    "error_chunk": SimulatedResponse.end_with_error,
    "stall": SimulatedResponse.stall,
}

"""The simulated engine's routes and sockets."""

import asyncio
import itertools
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import httptools
import msgspec

from serving.contract.codec import NOT_JSON
from serving.engine.simulated import metrics, wire
from serving.engine.simulated.embedding import EmbeddingWireFormat, read_batch
from serving.engine.simulated.engine import GenerationRun, SimulatedEngine
from serving.engine.simulated.request import (
    SimulatedRejection,
    count_tokens,
    read_chat,
    read_completion,
)
from serving.engine.simulated.response import SimulatedResponse
from serving.engine.simulated.settings import OF_ENGINE, Fault, FaultScript, SimulatorSettings

BODY_BYTES_MAX = 32 * 1024 * 1024
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


class SimulatedConnection(asyncio.Protocol):
    """One client connection, one request at a time; `on_request` gets each whole request.

    `on_gone` is set by whoever answers: called once when the client leaves before the end.
    """

    def __init__(self, on_request: "Callable[[SimulatedConnection], None]") -> None:
        self.on_request = on_request
        self.on_gone: Callable[[], None] | None = None
        self.method = ""
        self.path = ""
        self.body = b""
        self.request_id = ""
        """The client's own id, which like vLLM's the answer's repeats."""
        self._parts: list[bytes] = []
        self._url = b""
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._leave()

    def eof_received(self) -> bool:
        return False

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()

    def on_message_begin(self) -> None:
        self._url = b""
        self.request_id = ""
        self._parts.clear()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self.request_id = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        if sum(map(len, self._parts)) > BODY_BYTES_MAX:
            self.abort()

    def on_message_complete(self) -> None:
        self.method = self._parser.get_method().decode()
        self.path = self._url.partition(b"?")[0].decode(errors="replace")
        self.body = b"".join(self._parts)
        self.on_request(self)

    def reply(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """Send a whole answer."""
        self.on_gone = None
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nserver: uvicorn\r\n"
            f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._write(head.encode() + body)

    def open_stream(self) -> None:
        """Send the head of a stream of server-sent events."""
        self._write(_STREAM_HEAD)

    def send(self, data: bytes) -> None:
        """Send a part of the stream."""
        self._write(b"%x\r\n%b\r\n" % (len(data), data))

    def close_stream(self) -> None:
        """End the stream; the connection stays for the next request."""
        self.on_gone = None
        self._write(b"0\r\n\r\n")

    def abort(self) -> None:
        """Drop the connection without a word."""
        self.on_gone = None
        if self._transport is not None:
            self._transport.abort()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _leave(self) -> None:
        if self.on_gone is not None:
            gone, self.on_gone = self.on_gone, None
            gone()


REFUSE_SECONDS = 3_600.0
"""How long `refuse` closes the door when told no time: there is no route left to end it."""

_READERS = {"/v1/chat/completions": read_chat, "/v1/completions": read_completion}
_FAULTS = msgspec.json.Decoder(list[Fault])


class SimulatedServer:
    """Serves one simulated engine; `port` is the one in use once started."""

    def __init__(self, settings: SimulatorSettings, faults: list[Fault] | None = None) -> None:
        self.settings = settings
        self.engine = SimulatedEngine(settings)
        self.script = FaultScript()
        self.port = settings.port
        self.created = int(time.time())
        self._initial_faults = faults or []
        self._numbers = itertools.count(1)
        self._registry = metrics.registry_of(self.engine)
        self._listener: asyncio.Server | None = None
        self._connections: set[SimulatedConnection] = set()
        self._routes: dict[tuple[str, str], Callable[[SimulatedConnection], None]] = {
            ("GET", "/health"): self._health,
            ("GET", "/v1/models"): self._models,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/version"): self._version,
            ("POST", "/v1/chat/completions"): self._generate,
            ("POST", "/v1/completions"): self._generate,
            ("POST", "/v1/embeddings"): self._generate,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/simulated/faults"): self._set_faults,
            ("DELETE", "/simulated/faults"): self._clear_faults,
        }

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: SimulatedConnection(self._handle), self.settings.host, self.port, backlog=4_096
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        for fault in self._initial_faults:
            self._set_fault(fault)
        self._initial_faults = []

    async def stop(self) -> None:
        """Stop listening; running answers are dropped with their connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _handle(self, connection: SimulatedConnection) -> None:
        route = self._routes.get((connection.method, connection.path))
        if route is None:
            connection.reply(404, b'{"detail":"Not Found"}')
        else:
            route(connection)

    def _health(self, connection: SimulatedConnection) -> None:
        connection.reply(503 if self.engine.is_dead else 200, b"")

    def _models(self, connection: SimulatedConnection) -> None:
        names, context = self.settings.models, self.settings.context_tokens
        body = wire.models_body(names, context_tokens=context, created=self.created)
        connection.reply(200, body)

    def _version(self, connection: SimulatedConnection) -> None:
        connection.reply(200, b'{"version":"0.32.0"}')

    def _metrics(self, connection: SimulatedConnection) -> None:
        body = metrics.render(self._registry)
        connection.reply(200, body, "text/plain; version=0.0.4; charset=utf-8")

    def _generate(self, connection: SimulatedConnection) -> None:
        fault = self.script.next()
        try:
            if self.engine.is_dead:
                raise SimulatedRejection(
                    wire.ENGINE_DIED, status=500, kind="InternalServerError", param=None
                )
            if fault is not None and self._fail_at_once(connection, fault):
                return
            run, words = self._prepare(connection)
        except SimulatedRejection as refusal:
            connection.reply(refusal.status, _error_of(refusal))
            return
        connection.on_gone = lambda: self.engine.cancel(run)
        self.engine.submit(run, SimulatedResponse(self.engine, connection, run, words, fault))

    def _prepare(
        self, connection: SimulatedConnection
    ) -> tuple[GenerationRun, wire.VllmWireFormat | EmbeddingWireFormat]:
        """Return the work that a body asks for, and how its answer is worded. Raises Refusal."""
        request_id = connection.request_id or self._next_id()
        read = _READERS.get(connection.path)
        if read is None:
            batch = read_batch(connection.body, self.settings)
            return batch.run(), EmbeddingWireFormat(batch, request_id, seed=self.settings.seed)
        work = read(connection.body, self.settings.models, self.settings.context_tokens)
        run = self.engine.prepare(work)
        return run, wire.VllmWireFormat(run, request_id)

    def _tokenize(self, connection: SimulatedConnection) -> None:
        try:
            count = count_tokens(connection.body)
        except SimulatedRejection as refusal:
            connection.reply(refusal.status, _error_of(refusal))
            return
        connection.reply(200, wire.count_body(count, context_tokens=self.settings.context_tokens))

    def _next_id(self) -> str:
        return f"{self.settings.seed & 0xFFFF:04x}{next(self._numbers):012x}"

    def _fail_at_once(self, connection: SimulatedConnection, fault: Fault) -> bool:
        if fault.kind == "error":
            raise SimulatedRejection(
                "A scripted fault.", status=fault.status, kind="Scripted", param=None
            )
        if fault.kind == "reset":
            connection.abort()
        return fault.kind in ("reset", "hang")

    def _set_faults(self, connection: SimulatedConnection) -> None:
        try:
            faults = _FAULTS.decode(connection.body)
        except NOT_JSON as error:
            connection.reply(400, _error_of(SimulatedRejection(str(error), param=None)))
            return
        connection.reply(200, b"{}")
        for fault in faults:
            self._set_fault(fault)

    def _clear_faults(self, connection: SimulatedConnection) -> None:
        self.script.clear()
        self._set_dead(False)
        self.engine.freeze(False)
        connection.reply(200, b"{}")

    def _set_fault(self, fault: Fault) -> None:
        if fault.kind not in OF_ENGINE:
            self.script.add(fault)
            return
        loop = asyncio.get_running_loop()
        if fault.kind == "refuse":
            self._refuse()
            loop.call_later(fault.seconds or REFUSE_SECONDS, self._listen_again)
            return
        switch = self.engine.freeze if fault.kind == "freeze" else self._set_dead
        switch(True)
        if fault.seconds:
            loop.call_later(fault.seconds, switch, False)

    def _set_dead(self, dead: bool) -> None:
        self.engine.is_dead = dead

    def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _listen_again(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self.start())


def _error_of(refusal: SimulatedRejection) -> bytes:
    return wire.error_body(
        str(refusal), kind=refusal.kind, param=refusal.param, status=refusal.status
    )

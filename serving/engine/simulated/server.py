"""The simulated engine's routes, and the socket they are served on."""

import asyncio
import itertools
import time
from collections.abc import Callable

import msgspec

from serving.contract.codec import NOT_JSON
from serving.engine.simulated import metrics, wire
from serving.engine.simulated.connection import Connection
from serving.engine.simulated.embedding import BatchWire, read_batch
from serving.engine.simulated.engine import Run, SimulatedEngine
from serving.engine.simulated.exchange import Exchange
from serving.engine.simulated.faults import OF_ENGINE, Fault, FaultScript
from serving.engine.simulated.request import (
    Refusal,
    count_tokens,
    read_chat,
    read_completion,
)
from serving.engine.simulated.settings import Settings

REFUSE_SECONDS = 3_600.0
"""How long `refuse` closes the door when told no time: there is no route left to end it."""

_READERS = {"/v1/chat/completions": read_chat, "/v1/completions": read_completion}
_FAULTS = msgspec.json.Decoder(list[Fault])


class Server:
    """Serves one simulated engine; `port` is the one in use once started."""

    def __init__(self, settings: Settings, faults: list[Fault] | None = None) -> None:
        self.settings = settings
        self.engine = SimulatedEngine(settings)
        self.script = FaultScript()
        self.port = settings.port
        self.created = int(time.time())
        self._initial_faults = faults or []
        self._numbers = itertools.count(1)
        self._registry = metrics.registry_of(self.engine)
        self._listener: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._routes: dict[tuple[str, str], Callable[[Connection], None]] = {
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
            lambda: Connection(self._handle), self.settings.host, self.port, backlog=4_096
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

    def _handle(self, connection: Connection) -> None:
        route = self._routes.get((connection.method, connection.path))
        if route is None:
            connection.reply(404, b'{"detail":"Not Found"}')
        else:
            route(connection)

    def _health(self, connection: Connection) -> None:
        connection.reply(503 if self.engine.is_dead else 200, b"")

    def _models(self, connection: Connection) -> None:
        names, context = self.settings.models, self.settings.context_tokens
        body = wire.models_body(names, context_tokens=context, created=self.created)
        connection.reply(200, body)

    def _version(self, connection: Connection) -> None:
        connection.reply(200, b'{"version":"0.32.0"}')

    def _metrics(self, connection: Connection) -> None:
        body = metrics.render(self._registry)
        connection.reply(200, body, "text/plain; version=0.0.4; charset=utf-8")

    def _generate(self, connection: Connection) -> None:
        fault = self.script.next()
        try:
            if self.engine.is_dead:
                raise Refusal(wire.ENGINE_DIED, status=500, kind="InternalServerError", param=None)
            if fault is not None and self._fail_at_once(connection, fault):
                return
            run, words = self._prepare(connection)
        except Refusal as refusal:
            connection.reply(refusal.status, _error_of(refusal))
            return
        connection.on_gone = lambda: self.engine.cancel(run)
        self.engine.submit(run, Exchange(self.engine, connection, run, words, fault))

    def _prepare(self, connection: Connection) -> tuple[Run, wire.Wire | BatchWire]:
        """Return the work that a body asks for, and how its answer is worded. Raises Refusal."""
        request_id = connection.request_id or self._next_id()
        read = _READERS.get(connection.path)
        if read is None:
            batch = read_batch(connection.body, self.settings)
            return batch.run(), BatchWire(batch, request_id, seed=self.settings.seed)
        work = read(connection.body, self.settings.models, self.settings.context_tokens)
        run = self.engine.prepare(work)
        return run, wire.Wire(run, request_id)

    def _tokenize(self, connection: Connection) -> None:
        try:
            count = count_tokens(connection.body)
        except Refusal as refusal:
            connection.reply(refusal.status, _error_of(refusal))
            return
        connection.reply(200, wire.count_body(count, context_tokens=self.settings.context_tokens))

    def _next_id(self) -> str:
        return f"{self.settings.seed & 0xFFFF:04x}{next(self._numbers):012x}"

    def _fail_at_once(self, connection: Connection, fault: Fault) -> bool:
        if fault.kind == "error":
            raise Refusal("A scripted fault.", status=fault.status, kind="Scripted", param=None)
        if fault.kind == "reset":
            connection.abort()
        return fault.kind in ("reset", "hang")

    def _set_faults(self, connection: Connection) -> None:
        try:
            faults = _FAULTS.decode(connection.body)
        except NOT_JSON as error:
            connection.reply(400, _error_of(Refusal(str(error), param=None)))
            return
        connection.reply(200, b"{}")
        for fault in faults:
            self._set_fault(fault)

    def _clear_faults(self, connection: Connection) -> None:
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


def _error_of(refusal: Refusal) -> bytes:
    return wire.error_body(
        str(refusal), kind=refusal.kind, param=refusal.param, status=refusal.status
    )

"""What is fuzzed: each target takes bytes and raises only when something is wrong."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, cast

from serving.engine.embedding_parser import EmbeddingParser, vector_of
from serving.engine.errors import EngineError
from serving.engine.events import EngineEvent
from serving.engine.http_client import ReplicaConnection
from serving.engine.response_parser import SseSplitter, StreamParser
from serving.gateway.dialects.json_schema import PATTERN_SIZE_MAX, PatternTooComplex, expanded_size
from serving.gateway.dialects.routes import DIALECTS
from serving.gateway.errors import BadRequest
from tests.fixtures.attacks import BODIES
from tests.fixtures.catalog import embedder, model
from tests.fixtures.conversations import DIFFERENCES, differences, read_by_gateway, read_by_h11
from tests.serving.gateway.connection.test_traces import TABLE as TRACES
from tests.serving.gateway.connection.test_traces import wire
from tests.serving.gateway.routes import ROUTES

MODELS = {"generate": model(), "embed": embedder()}
SEED_BYTES_MAX = 16 * 1024


def bodies(data: bytes) -> None:
    """Every dialect takes a body, or refuses it in words of ours that are short."""
    for dialect in DIALECTS.values():
        try:
            dialect.inference(
                dialect.decode(data), body_bytes=len(data), model=MODELS[dialect.task]
            )
        except BadRequest as error:
            assert error.code
            assert len(error.message) < 1_000


def patterns(data: bytes) -> None:
    """A pattern is refused, or no larger than we let an engine compile."""
    try:
        assert expanded_size(data.decode(errors="replace")) <= PATTERN_SIZE_MAX
    except PatternTooComplex:
        return


def streams(data: bytes) -> None:
    """An engine's stream is read to the same events wherever it is cut, or is broken."""
    cut = data[0] % len(data) if data else 0
    whole, pieces = SseSplitter(), SseSplitter()
    try:
        events = whole.feed(data)
    except EngineError:
        return
    assert [*pieces.feed(data[:cut]), *pieces.feed(data[cut:])] == events
    reading = StreamParser(choices=1, prompts=1, request_id=None)
    try:
        reading.feed(data)
        reading.finish()
    except EngineError:
        return


def vectors(data: bytes) -> None:
    """An answer of embeddings is read to the same vectors wherever it is cut, or is broken."""
    cut = data[0] % len(data) if data else 0
    whole, pieces = EmbeddingParser(1), EmbeddingParser(1)
    events = [event.raw for event in whole.feed(data)]
    assert [event.raw for part in (data[:cut], data[cut:]) for event in pieces.feed(part)] == events
    try:
        whole.finish()
    except EngineError:
        return
    pieces.finish()
    for raw in events:
        try:
            vector = vector_of(EngineEvent(raw))
            assert vector.base64() is not None
            assert vector.numbers() is not None
        except EngineError:
            return


class _Transport:
    """Takes everything and sends nothing."""

    def writelines(self, data: Any) -> None: ...

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


async def _answer(data: bytes) -> None:
    connection = ReplicaConnection()
    connection.connection_made(cast(asyncio.Transport, _Transport()))
    await connection.send(b"POST / HTTP/1.1\r\n\r\n", (b"{}",))
    connection.data_received(data)
    connection.connection_lost(None)
    assert not connection.is_reusable
    try:
        await connection.status()
        while await connection.read():
            pass
    except EngineError:
        return


def answers(data: bytes) -> None:
    """Whatever a replica writes, its answer ends, or is broken."""
    asyncio.run(asyncio.wait_for(_answer(data), 60))


LOOSER = [re.compile(rb"[\r\n]*" + row["first_line"].encode()) for row in DIFFERENCES["looser"]]


def requests(data: bytes) -> None:
    """A client's bytes are read to the same requests wherever they are cut, and h11 reads the same
    where the gateway does not refuse them."""
    cut = data[0] % len(data) if data else 0
    whole = asyncio.run(read_by_gateway([[data]]))
    assert asyncio.run(read_by_gateway([[data[:cut], data[cut:]]])) == whole
    found = differences(whole, read_by_h11([data]))
    assert "looser" not in found or any(first.match(data) for first in LOOSER), found


CHUNK = b'{"id":"r","object":"o","created":1,"model":"m","choices":[{"index":0}],"usage":{}}'
VECTOR = b'{"index":0,"object":"embedding","embedding":"AACAPw=="}'
VECTORS = b'{"id":"r","object":"list","data":[%b],"usage":{"prompt_tokens":1}}'
OK = b"HTTP/1.1 200 OK\r\n"
SEEDS: dict[str, list[bytes]] = {
    "answers": [
        OK + b"content-length: 2\r\n\r\nok",
        OK + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"connection: close\r\n\r\nok",
    ],
    "bodies": [
        *(json.dumps(route.body).encode() for route in ROUTES.values()),
        *(data for _, make in BODIES.values() if len(data := make()) < SEED_BYTES_MAX),
    ],
    "patterns": [b"((a{9}){9}|[^a-z]{1,9})*\\d+.?", b"[]a](?:b|(?=c))$"],
    "requests": [
        wire(request["send"], TRACES["text"] | {"key": "sk-key"} | framing)
        for request in TRACES["framed_request"][:2]
        for framing in TRACES["framing"]
    ],
    "streams": [b"data: " + CHUNK + b"\n\ndata: [DONE]\n\n", b": hi\r\ndata: 1\r\n\r\n"],
    "vectors": [
        VECTORS % VECTOR,
        VECTORS % VECTOR.replace(b'"AACAPw=="', b"[1.0, -2e3]"),
        VECTORS % b",".join([VECTOR] * 3),
        VECTORS % VECTOR.replace(b"AACA", b"\x80ACA"),
    ],
}
"""What gets past the first line of what is fuzzed."""

TARGETS: dict[str, Callable[[bytes], None]] = {
    "answers": answers,
    "bodies": bodies,
    "patterns": patterns,
    "requests": requests,
    "streams": streams,
    "vectors": vectors,
}

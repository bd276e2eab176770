"""The least that a gateway can do, as a measure of one that does more.

`python -m tests.benchmarks.null_relay --port N --engine-url URL`: uvicorn, and the gateway's own
engine client. Bytes come and go: no key, no bounds, no parsing, no money, no journal.
"""

from functools import partial
from typing import Annotated, Any

import aiohttp
import typer
import uvicorn
import uvloop

from serving.engine.http_client import ReplicaClient
from serving.engine.https_client import HttpsReplicaCall
from serving.gateway.__main__ import relieve_collector

CONNECT_SECONDS = 5.0


class NullRelay:
    """Posts each body to the engine, and sends its answer back as it comes."""

    def __init__(self, client: ReplicaClient, engine_url: str) -> None:
        self._client = client
        self._engine_url = engine_url

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Relay one request."""
        if scope["method"] != "POST":
            await _answer(send, b"{}")
            return
        body = []
        while (message := await receive())["type"] == "http.request":
            body.append(message["body"])
            if not message["more_body"]:
                break
        url = self._engine_url + scope["path"]
        async with self._client.call(url, body, {}, connect_seconds=CONNECT_SECONDS) as answer:
            headers = [(b"content-type", b"application/json")]
            start = {"type": "http.response.start", "status": await answer.status()}
            await send(start | {"headers": headers})
            while data := await answer.read():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _answer(send: Any, body: bytes) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def serve(port: int, engine_url: str) -> None:
    """Serve until killed."""
    async with aiohttp.ClientSession() as session:
        app = NullRelay(ReplicaClient(partial(HttpsReplicaCall, session)), engine_url)
        relieve_collector()
        config = uvicorn.Config(
            app,
            port=port,
            http="httptools",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
        )
        await uvicorn.Server(config).serve()


def main(
    port: Annotated[int, typer.Option(help="Loopback port.")],
    engine_url: Annotated[str, typer.Option(help="Where the engine listens.")],
) -> None:
    """Serve the relay until it is killed."""
    uvloop.run(serve(port, engine_url))


if __name__ == "__main__":
    typer.run(main)

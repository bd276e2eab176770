"""Control as browsers reach it: an application behind the real ASGI server, in a thread."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from socket import AF_INET, IPPROTO_TCP, SOCK_STREAM, socket
from threading import Thread

import uvicorn


@contextmanager
def serving(application: object) -> Iterator[str]:
    config = uvicorn.Config(
        application,  # type: ignore[arg-type]
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    # Named TCP, or asyncio lets answers wait for 40 ms (Nagle).
    listener = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    thread = Thread(target=asyncio.run, args=(server.serve([listener]),))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()

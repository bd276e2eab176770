"""An ASGI application as browsers and other clients reach it: at an address of the loopback."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import uvicorn


@contextmanager
def serving(application: object) -> Iterator[str]:
    """Serve an application from a thread of its own; yield its address."""
    config = uvicorn.Config(
        application,  # type: ignore[arg-type]
        host="127.0.0.1",
        port=0,
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    thread = Thread(target=asyncio.run, args=(server.serve([socket]),))
    thread.start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        socket.close()

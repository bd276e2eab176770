"""`python -m control.server`: both listeners of control in one event loop, ended in order."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog
import uvicorn

from control.asgi_middleware import TrustedProxies
from control.config import ConfigError, ControlConfig, Network
from control.db.connection import TimeoutConnection
from control.http_protocol import DeadlineProtocol

log = structlog.get_logger(__name__)

DRAIN_SECONDS = 10
"""How long open requests may take to end, per listener."""
ANSWER_SECONDS = 30.0
"""How long a request waits for an answer of the database, which is then taken to be gone."""


class Listener(uvicorn.Server):
    """A uvicorn server that leaves the process's signals to `serve`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: there are two servers, and one order in which they end."""
        yield


def listener(
    application: Any, host: str, port: int, trusted_proxies: Iterable[Network] = ()
) -> Listener:
    """Return a server of an application on an address. What a request says of its client's address
    and scheme counts only where it comes from a trusted proxy."""
    config = uvicorn.Config(
        TrustedProxies(application, trusted_proxies),
        host=host,
        port=port,
        http=DeadlineProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=65,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    return Listener(config)


SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter while others want it. A sign-in wants it some eighty
times, after each answer of the database; at Python's 5 ms each it would wait for others' pages."""


async def serve(config: ControlConfig) -> None:
    """Serve until SIGINT or SIGTERM: then people first, the data plane last."""
    from control.asgi import application, internal_application
    from control.feed.views import notifier

    stop = _stop_signal()
    TimeoutConnection.answer_seconds = ANSWER_SECONDS
    people = listener(application, config.host, config.port, config.trusted_proxies)
    planes = listener(internal_application, config.internal_host, config.internal_port)
    tasks = [asyncio.create_task(each.serve()) for each in (people, planes)]
    log.info("control_listens", port=config.port, internal_port=config.internal_port)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
    people.should_exit = True
    await tasks[0]
    notifier().close()  # open long polls are answered, else they would hold up the end
    planes.should_exit = True
    await tasks[1]
    stopped.cancel()


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def main() -> None:
    """Serve with the configuration of the environment; a bad one is one line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")
    try:
        config = ControlConfig.from_environment(os.environ)
    except ConfigError as error:
        sys.exit(f"penstock control: {error}")
    import django

    django.setup()
    sys.setswitchinterval(SWITCH_SECONDS)
    uvloop = uvicorn.importer.import_from_string("uvloop:new_event_loop")
    with asyncio.Runner(loop_factory=uvloop) as runner:
        runner.run(serve(config))


if __name__ == "__main__":
    main()

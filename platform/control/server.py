"""`python -m control.server`: both listeners of control in one event loop, shut down in order."""

import asyncio
import fcntl
import hashlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command

from control.asgi_middleware import TrustedProxies
from control.config import ControlConfig
from control.db.connection import TimeoutConnection
from control.http_protocol import NOT_PROXIED, DeadlineProtocol, ProxiedConnections
from serving.contract.client_address import Network, UnknownProxy
from serving.contract.environment import ConfigError

log = structlog.get_logger(__name__)

STAMP = ".collected"
"""The name of the file that says which static files a folder has."""
DRAIN_SECONDS = 10
"""The time that open requests may take to finish, per listener."""
CONNECTION_SECONDS = 1.0
"""The time that a request waits for a connection, before it is answered 503."""
ANSWER_SECONDS = 30.0
"""The time that a request waits for the database, which then counts as unavailable."""


class Listener(uvicorn.Server):
    """A uvicorn server that leaves the process's signals to `serve`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: `serve` shuts both servers down in order."""
        yield


def listener(
    application: Any,
    host: str,
    port: int,
    trusted_proxies: Iterable[Network] = (),
    proxied: ProxiedConnections = NOT_PROXIED,
) -> Listener:
    """Return a server of an application on an address. Forwarded client addresses and schemes count
    only from trusted proxies, PROXY headers only from balancers that are configured."""
    trusted = tuple(trusted_proxies)
    unknown_proxy = UnknownProxy(trusted, proxied.networks)
    config = uvicorn.Config(
        TrustedProxies(application, trusted, unknown_proxy),
        host=host,
        port=port,
        http=partial(DeadlineProtocol, proxied, unknown_proxy),  # type: ignore[arg-type]
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
"""The time that a thread may keep the interpreter while others wait. A sign-in needs it some eighty
times, after each response of the database; at Python's 5 ms each it would wait for other pages."""


async def serve(config: ControlConfig) -> None:
    """Serve until SIGINT or SIGTERM; then stop the public listener first, the internal one last."""
    from control.asgi import application, internal_application
    from control.feed.views import notifier

    stop = _stop_signal()
    TimeoutConnection.answer_seconds = ANSWER_SECONDS
    settings.DATABASES["default"]["OPTIONS"]["pool"]["timeout"] = CONNECTION_SECONDS
    proxied = ProxiedConnections(
        config.proxy_protocol_from, scheme="https" if config.is_https else "http"
    )
    public = listener(application, config.host, config.port, config.trusted_proxies, proxied)
    internal = listener(internal_application, config.internal_api_host, config.internal_api_port)
    tasks = [asyncio.create_task(each.serve()) for each in (public, internal)]
    log.info("control_started", port=config.port, internal_api_port=config.internal_api_port)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
    public.should_exit = True
    await tasks[0]
    notifier().close()  # ends open long polls, which would delay the shutdown
    internal.should_exit = True
    await tasks[1]
    stopped.cancel()


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def collect_static_files(folder: Path) -> bool:
    """Fill the folder with this version's static files, with hashed names and compressed; return
    whether it lacked any.

    Files of other versions stay, since pages of processes that still run it link to them. Control
    processes of one host may share the folder: one collects, the others wait for it. Raises OSError
    for a folder that cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, digest = folder / STAMP, _source_digest()
        if stamp.exists() and stamp.read_text() == digest:
            return False
        call_command("collectstatic", interactive=False, verbosity=0)
        stamp.write_text(digest)
    return True


def _source_digest() -> str:
    """Return a digest of the names, sizes and times of all source files."""
    return hashlib.sha256("\n".join(sorted(_source_files())).encode()).hexdigest()


def _source_files() -> Iterator[str]:
    for finder in get_finders():
        for name, storage in finder.list([]):
            status = Path(storage.path(name)).stat()
            yield f"{name} {status.st_size} {status.st_mtime_ns}"


def main() -> None:
    """Serve with the environment's configuration; an invalid one is one line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")
    try:
        config = ControlConfig.from_environment(os.environ)
    except ConfigError as error:
        sys.exit(f"penstock run control: {error}")
    import django

    django.setup()
    from control.required_versions import exit_if_unsupported

    exit_if_unsupported("penstock run control")
    if config.static_dir is not None:
        try:
            if collect_static_files(config.static_dir):
                log.info("static_files_collected", folder=str(config.static_dir))
        except OSError as error:
            sys.exit(f"penstock run control: PENSTOCK_STATIC_DIR cannot be written: {error}")
    sys.setswitchinterval(SWITCH_SECONDS)
    uvloop = uvicorn.importer.import_from_string("uvloop:new_event_loop")
    with asyncio.Runner(loop_factory=uvloop) as runner:
        runner.run(serve(config))


if __name__ == "__main__":
    main()

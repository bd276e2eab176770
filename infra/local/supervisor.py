"""The supervisor of one local run: circusd, spoken to over a socket in the run's folder.

circusd restarts a killed child within a second and keeps each child's log; the order of start
and stop is ours (docs/decisions/0001-layered-packages.md).
"""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from circus.client import CircusClient
from circus.exc import CallError

from infra.local.config import HOST, ROOT, LocalError, StartFailed
from infra.local.processes import GATEWAY, Process, belongs_to
from infra.local.state_dir import StateDirectory

LOG_BYTES_MAX = 16 * 1024 * 1024
START_SECONDS_MAX = 15.0
ANSWER_SECONDS_MAX = 15.0
STOP_SECONDS_MAX = 60.0
BUSY = "arbiter is already running"
CONFIGURATION = """\
[circus]
endpoint = {folder}/control.sock
pubsub_endpoint = {folder}/events.sock
multicast_endpoint =
check_delay = 0.5
pidfile = {pidfile}
"""
SOCKET = """
[socket:{name}]
host = {host}
port = {port}
"""
WATCHER = """
[watcher:{name}]
cmd = {command}
working_dir = {folder}
autostart = False
use_sockets = True
copy_env = True
stop_signal = {stop_signal}
graceful_timeout = {stop_seconds}
max_age = 0
hooks.before_reap = {hook}
stdout_stream.class = FileStream
stdout_stream.filename = {log}
stdout_stream.max_bytes = {log_bytes_max}
stdout_stream.backup_count = 1
"""
"""Configuration of a process that gets sockets: circus takes it from its file alone."""
CLOSE_OUTPUT = "infra.local.supervisor.close_output"
IGNORE_FAILURE = True
OUTPUT_BYTES_MAX = 1024 * 1024
"""The most that a pipe holds."""


def close_output(watcher: Any, *, process_pid: int, **_: object) -> None:
    """Log what a process wrote last and stop reading its pipe, before circus closes it.

    circus calls this for each process that has ended. Left alone, it may close the pipe while its
    event loop still knows the file descriptor; the next process whose pipe gets the same number
    then runs, but circus does not know it and starts it again and again (circus 0.19).
    """
    process, redirector = watcher.processes[process_pid], watcher.stream_redirector
    for name, pipe in redirector.get_process_pipes(process):
        if pipe.closed:
            continue
        os.set_blocking(pipe.fileno(), False)
        with suppress(BlockingIOError):
            if data := os.read(pipe.fileno(), OUTPUT_BYTES_MAX):
                redirector.redirect[name]({"data": data, "pid": process_pid, "name": name})
    redirector.remove_redirections(process)


class Supervisor:
    """A running circusd, or one to be started, of one home folder."""

    def __init__(self, home: StateDirectory) -> None:
        self.home = home
        self.endpoint = f"ipc://{home.run}/control.sock"
        self.pidfile = home.run / "supervisor.pid"

    def pid(self) -> int | None:
        """Return the supervisor's pid; None when it does not run, whatever a stale file says."""
        try:
            process = psutil.Process(int(self.pidfile.read_text()))
            is_alive = process.status() != psutil.STATUS_ZOMBIE
        except (OSError, ValueError, psutil.NoSuchProcess):
            return None
        return process.pid if is_alive and belongs_to(process, self.home.path) else None

    def start(
        self, environment: Mapping[str, str], *, port: int, gateways: Iterable[Process]
    ) -> None:
        """Start circusd in a session of its own, so that a terminal's Ctrl-C stays ours.

        It listens on the gateways' port: whichever of them ends, nobody is refused meanwhile.
        """
        configuration = self.home.run / "circus.ini"
        configuration.write_text(self.configuration(port, gateways))
        self.pidfile.unlink(missing_ok=True)
        command = [sys.executable, "-m", "circus.circusd", "--log-level", "info"]
        with self.home.log("supervisor").open("ab") as log:
            # Left to itself on purpose: it outlives this command.
            process = subprocess.Popen(
                [*command, str(configuration)],
                env=dict(environment),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._await_answer(process)

    def configuration(self, port: int, gateways: Iterable[Process]) -> str:
        """Return what circusd is told before it starts: itself, its socket and who gets that."""
        parts = [CONFIGURATION.format(folder=f"ipc://{self.home.run}", pidfile=self.pidfile)]
        parts += [SOCKET.format(name=GATEWAY, host=HOST, port=port)]
        parts += [self._watcher(process) for process in gateways]
        return "".join(parts)

    def add(self, process: Process, environment: Mapping[str, str]) -> None:
        """Have a process started and kept alive. Raises StartFailed."""
        if process.has_sockets:
            self.start_process(process.name)
            return
        options: dict[str, Any] = {
            "env": dict(environment),
            "working_dir": str(ROOT) if process.user is None else os.sep,
            "stop_signal": int(process.stop_signal),
            "graceful_timeout": process.stop_seconds,
            "max_age": 0,
            "hooks": {"before_reap": [CLOSE_OUTPUT, IGNORE_FAILURE]},
            "stdout_stream": self._log_of(process.name),
        }
        if process.user is not None:
            options["uid"] = process.user
        self.call("add", name=process.name, cmd=_in_one_stream(process), options=options)
        self.start_process(process.name)

    def start_process(self, name: str) -> None:
        """Start a process that was added before."""
        self.call("start", name=name, waiting=True)

    def stop_process(self, name: str, *, seconds_max: float = STOP_SECONDS_MAX) -> None:
        """Stop one process and wait until it has ended."""
        self.call("stop", name=name, waiting=True, timeout_seconds=seconds_max)

    def quit(self) -> None:
        """End the supervisor itself, and whatever still runs under it."""
        self.call("quit")

    def pids(self) -> dict[str, int]:
        """Return the pid of each process that runs, by its name; empty when nothing answers."""
        try:
            names = self.call("list").get("watchers", [])
            found = {name: self.call("list", name=name).get("pids", []) for name in names}
        except LocalError:
            return {}
        return {name: pids[0] for name, pids in found.items() if pids}

    def call(
        self, command: str, *, timeout_seconds: float = ANSWER_SECONDS_MAX, **properties: object
    ) -> dict[str, Any]:
        """Send one command of circus and return its answer. Raises LocalError on a refusal.

        circus does one thing at a time, its own look at the children included, and refuses the
        next one meanwhile: then the command is sent again.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            answer = self._send(command, timeout_seconds, properties)
            if answer.get("status") != "error":
                return answer
            reason = str(answer.get("reason"))
            if BUSY not in reason or time.monotonic() > deadline:
                raise LocalError(
                    f"the supervisor refused {command!r} {properties.get('name', '')}: {reason}"
                )
            time.sleep(0.05)

    def _send(
        self, command: str, timeout_seconds: float, properties: Mapping[str, object]
    ) -> dict[str, Any]:
        client = CircusClient(endpoint=self.endpoint, timeout=timeout_seconds)
        try:
            answer: dict[str, Any] = client.send_message(command, **properties)
        except CallError as error:
            raise LocalError(f"the supervisor did not answer {command!r}: {error}") from error
        finally:
            client.stop()
        return answer

    def _watcher(self, process: Process) -> str:
        log = self._log_of(process.name)
        return WATCHER.format(
            name=process.name,
            command=_in_one_stream(process),
            folder=ROOT,
            stop_signal=process.stop_signal.name,
            stop_seconds=process.stop_seconds,
            hook=f"{CLOSE_OUTPUT},{IGNORE_FAILURE}",
            log=log["filename"],
            log_bytes_max=LOG_BYTES_MAX,
        )

    def _log_of(self, name: str) -> dict[str, object]:
        path = self.home.log(name)
        path.touch(mode=0o600)
        return {
            "class": "FileStream",
            "filename": str(path),
            "max_bytes": LOG_BYTES_MAX,
            "backup_count": 1,
        }

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        socket = Path(self.endpoint.removeprefix("ipc://"))
        while self.pid() is None or not socket.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise StartFailed(
                    f"the supervisor did not start; see {self.home.log('supervisor')}"
                )
            time.sleep(0.05)
        self.call("list")


def _in_one_stream(process: Process) -> str:
    """Return its command with its errors in its output."""
    return shlex.join(("/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *process.command))

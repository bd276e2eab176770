"""Starts one engine and ends with it: neither outlives the other, however one of them ends.

The node leads the process group. A guard, a shell that waits for the end of a pipe, kills the whole
group when the node is gone. So does the node where its own lifeline ends.
"""

import asyncio
import os
import resource
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from serving.contract.codec import encode
from serving.contract.node import ENGINE_PORT, NodeLaunch, NodeReport
from serving.node.proxy import HEAD_SECONDS, EngineProxy, ProxiedConnection

LOOPBACK = "127.0.0.1"
GUARD = ("/bin/sh", "-c", "read _; kill -KILL 0")
BACKLOG = 1_024
OPEN_FILES_MAX = 16_384
OPEN_FILES_RESERVED = 64
FLUSH_SECONDS = 2.0
"""For clients to take what an engine sent before its end."""
GONE_SECONDS = 10.0
"""For the kernel to end what was killed, which may have to give back a device."""
LOOK_SECONDS = 0.05
"""A node that looked without a pause would seem to the fleet to load weights."""
SIGNALLED = 128
"""A shell adds this to the number of the signal that ended a process."""


class NodeError(Exception):
    """The node cannot do as it was told; the message says why."""


async def supervise(launch: NodeLaunch) -> int:
    """Run the engine and its proxy until the engine ends; return its exit status. Raises NodeError.

    SIGTERM and SIGINT go to the engine, which finishes what it has meanwhile.
    """
    tls = tls_context(launch)
    listener = listen(launch.host, launch.port_base, launch.port_count)
    with listener, reserve_port() as reserved:
        engine_port = int(reserved.getsockname()[1])
        proxy = EngineProxy(
            engine_port, launch.grants, connections_max=connections_bound(launch.connections_max)
        )
        loop = asyncio.get_running_loop()
        guard = start_guard()
        engine = start_engine(launch, engine_port)
        guard_watch = watch(loop, guard.pid, kill_group)
        ended = asyncio.Event()
        watch(loop, engine.pid, ended.set)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, engine.send_signal, signal.SIGTERM)
        if launch.lifeline is not None:
            loop.add_reader(launch.lifeline, _read_lifeline, launch.lifeline)
        server = await loop.create_server(
            lambda: ProxiedConnection(proxy),
            sock=listener,
            ssl=tls,
            ssl_handshake_timeout=HEAD_SECONDS if tls else None,
            backlog=BACKLOG,
        )
        port = int(listener.getsockname()[1])
        report(launch, port, engine_port, engine.pid, is_tls=tls is not None)
        await ended.wait()
        server.close()
        await _flush(proxy)
        loop.remove_reader(guard_watch)
        await end_group(guard)
    status = engine.wait()
    return status if status >= 0 else SIGNALLED - status


def connections_bound(wanted: int) -> int:
    """Return how many clients may be connected, each with a connection to the engine: no more than
    files may be open. It raises that limit as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if resource.RLIM_INFINITY != soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return min(wanted, (limit - OPEN_FILES_RESERVED) // 2)


def listen(host: str, port_base: int, port_count: int) -> socket.socket:
    """Return a socket that listens on the first free port. Raises NodeError."""
    reason: OSError | None = None
    for port in range(port_base, port_base + port_count):
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            reason = error
        else:
            return listener
    last = port_base + port_count - 1
    raise NodeError(f"no port of {port_base} to {last} is free on {host}: {reason}")


def reserve_port() -> socket.socket:
    """Return a bound socket, which does not listen: Linux gives its loopback port to nobody but
    the engine, which binds it with SO_REUSEADDR too."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((LOOPBACK, 0))
    return reserved


def start_guard() -> "subprocess.Popen[bytes]":
    """Start what kills the group once this process is gone; our end of its pipe stays open."""
    read_end, _ = os.pipe()
    try:
        return subprocess.Popen(GUARD, stdin=read_end, stdout=subprocess.DEVNULL)
    finally:
        os.close(read_end)


def start_engine(launch: NodeLaunch, port: int) -> "subprocess.Popen[bytes]":
    """Start the engine in our group, with our output. Raises NodeError."""
    command = [str(port) if part == ENGINE_PORT else part for part in launch.command]
    try:
        return subprocess.Popen(command, env=launch.environment, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise NodeError(f"{command[0]}: {error}") from error


def tls_context(launch: NodeLaunch) -> ssl.SSLContext | None:
    """Return what TLS is spoken with, None where none is configured. Raises NodeError."""
    if not launch.tls_certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(launch.tls_certificate, launch.tls_key or None)
    except (OSError, ssl.SSLError) as error:
        raise NodeError(f"{launch.tls_certificate}: {error}") from error
    return context


def report(
    launch: NodeLaunch, port: int, engine_port: int, engine_pid: int, *, is_tls: bool
) -> None:
    """Write where the node listens, whole or not at all."""
    address = f"[{launch.address}]" if ":" in launch.address else launch.address
    told = NodeReport(
        url=f"{'https' if is_tls else 'http'}://{address}:{port}",
        engine_url=f"http://{LOOPBACK}:{engine_port}",
        node_pid=os.getpid(),
        engine_pid=engine_pid,
    )
    path = Path(launch.report_file)
    draft = path.with_suffix(".new")
    draft.write_bytes(encode(told))
    draft.replace(path)


def become_leader() -> None:
    """Open a process group, and a session, unless whoever started us did."""
    if os.getpgrp() != os.getpid():
        os.setsid()


def kill_group() -> None:
    """Kill everything, ourselves included."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


async def end_group(guard: "subprocess.Popen[bytes]", *, seconds: float = GONE_SECONDS) -> None:
    """Kill the processes that the engine left behind in our group, and the guard last. The guard
    stays if any of them is still there after so many seconds: it kills the group once we end."""
    deadline = time.monotonic() + seconds
    while orphans := [pid for pid in _members() if pid != guard.pid]:
        for pid in orphans:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return
        await asyncio.sleep(LOOK_SECONDS)
    guard.kill()
    guard.wait()


def _members() -> list[int]:
    """Return the living processes of our group, without us."""
    own, found = os.getpgrp(), []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.Error):
            is_living = process.status() != psutil.STATUS_ZOMBIE
            if process.pid != own and os.getpgid(process.pid) == own and is_living:
                found.append(process.pid)
    return found


def watch(loop: asyncio.AbstractEventLoop, pid: int, ended: Callable[[], object]) -> int:
    """Have `ended` called once when a child has ended; return the descriptor that tells it."""
    handle = os.pidfd_open(pid)

    def notice() -> None:
        loop.remove_reader(handle)
        ended()

    loop.add_reader(handle, notice)
    return handle


def _read_lifeline(lifeline: int) -> None:
    """Kill everything once nobody holds the other end of the pipe."""
    if not os.read(lifeline, 1):
        kill_group()


async def _flush(proxy: EngineProxy) -> None:
    """Wait for clients to take what was sent to them; the engine's connections are closed."""
    limit = asyncio.get_running_loop().time() + FLUSH_SECONDS
    while proxy.connections and asyncio.get_running_loop().time() < limit:
        for idle in [one for one in proxy.connections if not one.is_engaged]:
            idle.close()
        await asyncio.sleep(0.01)

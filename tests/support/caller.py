"""`python -m tests.support.caller URL SECRET BODY SECONDS CONNECTIONS`: asks again and again.

A process of its own, so that it takes nothing from whom it measures. BODY is a file; URL the whole
address. Prints what came as JSON: a list of (status, seconds) for each request.
"""

import asyncio
import contextlib
import http.client
import json
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Called:
    """What one connection or several saw."""

    statuses: list[int]
    seconds: list[float]


def ask(url: str, secret: str, body: bytes, until: float, seen: list[tuple[int, float]]) -> None:
    """Ask on one connection, opened anew when it breaks, until the time is over."""
    parts = urlsplit(url)
    assert parts.hostname
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
    while time.monotonic() < until:
        began, status = time.perf_counter(), 0
        try:
            connection.request("POST", parts.path, body, headers)
            answer = connection.getresponse()
            answer.read()
            status = answer.status
        except (OSError, http.client.HTTPException):
            connection.close()
        seen.append((status, time.perf_counter() - began))


def main(url: str, secret: str, body: str, seconds: str, connections: str) -> None:
    """Ask on so many connections at once, and print what came."""
    seen: list[tuple[int, float]] = []
    until, data = time.monotonic() + float(seconds), Path(body).read_bytes()
    threads = [
        threading.Thread(target=ask, args=(url, secret, data, until, seen))
        for _ in range(int(connections))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    json.dump(seen, sys.stdout)


async def call(url: str, secret: str, body: Path, seconds: float, connections: int = 1) -> Called:
    """Run a caller to its end."""
    words = (url, secret, str(body), str(seconds), str(connections))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.caller", *words), stdout=asyncio.subprocess.PIPE
    )
    try:
        said, _ = await child.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
    return await asyncio.to_thread(_called, said)  # in no time of the loop, which is measured


def _called(said: bytes) -> Called:
    seen = json.loads(said)
    return Called([status for status, _ in seen], [took for _, took in seen])


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The operator's listener: is it alive, is it ready, and its metrics."""

import asyncio
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from serving.gateway.conversation import Receive, Scope, Send

TEXT = b"text/plain; charset=utf-8"
STEP_SECONDS = 0.001
"""After which the writing of metrics lets requests go on."""
ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class OperatorApp:
    """`why_not_ready` names what is missing, or nothing; `remarks` what an operator should know."""

    def __init__(
        self,
        registry: CollectorRegistry,
        why_not_ready: Callable[[], str],
        remarks: Callable[[], list[str]],
    ) -> None:
        self._registry = registry
        self._why_not_ready = why_not_ready
        self._remarks = remarks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["path"] == "/metrics":
            status, kind, body = 200, CONTENT_TYPE_LATEST.encode(), await self.metrics()
        else:
            status, kind, body = self._answer(scope["path"])
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def metrics(self) -> bytes:
        """Return all metrics in Prometheus's text format.

        The event loop is held for STEP_SECONDS at a time: samples that are made as they are read
        may differ by what happens in between.
        """
        pieces, lines, began = list[bytes](), list[str](), time.perf_counter()
        for family in self._registry.collect():
            name = family.name + "_total" if family.type == "counter" else family.name
            lines.append(f"# HELP {name} {family.documentation}\n# TYPE {name} {family.type}\n")
            for sample in family.samples:
                lines.append(_line(sample))
                if time.perf_counter() - began > STEP_SECONDS:
                    pieces.append("".join(lines).encode())
                    lines.clear()
                    await asyncio.sleep(0)
                    began = time.perf_counter()
        return b"".join([*pieces, "".join(lines).encode()])

    def _answer(self, path: str) -> tuple[int, bytes, bytes]:
        if path == "/healthz":
            return 200, TEXT, b"ok\n"
        if path == "/readyz":
            missing = self._why_not_ready()
            lines = [missing or "ready", *self._remarks(), ""]
            return (503 if missing else 200), TEXT, "\n".join(lines).encode()
        return 404, TEXT, b"not found\n"


def _line(sample: Sample) -> str:
    value = floatToGoString(sample.value)  # type: ignore[no-untyped-call]
    if not sample.labels:
        return f"{sample.name} {value}\n"
    items = sorted(sample.labels.items())
    labels = ",".join([f'{name}="{text.translate(ESCAPES)}"' for name, text in items])
    return f"{sample.name}{{{labels}}} {value}\n"

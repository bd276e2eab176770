"""The operator's listener: is it alive, is it ready, and its metrics."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from serving.gateway.conversation import Receive, Scope, Send

TEXT = b"text/plain; charset=utf-8"


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
        status, kind, body = self._answer(scope["path"])
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, path: str) -> tuple[int, bytes, bytes]:
        if path == "/healthz":
            return 200, TEXT, b"ok\n"
        if path == "/readyz":
            missing = self._why_not_ready()
            lines = [missing or "ready", *self._remarks(), ""]
            return (503 if missing else 200), TEXT, "\n".join(lines).encode()
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST.encode(), generate_latest(self._registry)
        return 404, TEXT, b"not found\n"

"""A stream to the client: every event under our own head, sent as it comes."""

import time

from serving.gateway.conversation import Conversation
from serving.gateway.errors import Headers
from serving.gateway.heading import Heading
from serving.gateway.interrupts import Interrupts
from serving.gateway.job import Job
from serving.gateway.metrics import Metrics
from serving.gateway.reply import usage_event
from serving.gateway.sse import DONE
from serving.usage.meter import Tokens

STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
SEND_SECONDS = 60.0
"""A client that takes nothing for this long has left, as far as we are concerned."""


class ClientStream:
    """The Outlet of a request that asked for a stream."""

    def __init__(
        self, job: Job, conversation: Conversation, interrupts: Interrupts, metrics: Metrics
    ) -> None:
        self._job = job
        self._conversation = conversation
        self._interrupts = interrupts
        self._observe_gap = metrics.variant(job.model.variant_id).observe_gap
        self._heading = Heading(job.endpoint.id_prefix + conversation.request_id, job.model_name)
        self._last_at = 0.0

    async def take(self, events: list[bytes]) -> None:
        """Send events on; the first ones open the reply."""
        now = time.perf_counter()
        if self._conversation.has_begun:
            self._observe_gap(now - self._last_at)
        else:
            await self._conversation.begin(200, STREAM_HEADERS)
        self._last_at = now
        self._interrupts.expect("client_stalled", SEND_SECONDS)
        ours = [self._heading.rewrite(event) for event in events]
        await self._conversation.send(b"\n\n".join(ours) + b"\n\n")

    def end(self, tokens: Tokens) -> bytes:
        """Return the events that follow once usage is durable."""
        done = DONE + b"\n\n"
        if not self._job.wants_usage:
            return done
        request_id, created = self._conversation.request_id, self._heading.created
        return usage_event(created, self._job, request_id, tokens) + done

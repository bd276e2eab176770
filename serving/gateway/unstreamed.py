"""An answer that the engine gives in one piece."""

import aiohttp

from serving.gateway.job import Job
from serving.gateway.reply import rebuild
from serving.gateway.sse import BrokenStream
from serving.usage.meter import Tokens

ANSWER_BYTES_MAX = 64 * 1024 * 1024


class UnstreamedRelay:
    """For tool calls alone: vLLM parses them differently when it streams.

    Such a client that hangs up is charged nothing, since nothing is known of the work before
    its end.
    """

    def __init__(self, job: Job, request_id: str) -> None:
        self.tokens = Tokens()
        self.first_token_at: float | None = None
        self.tail = b""
        self._job = job
        self._request_id = request_id

    async def run(self, content: aiohttp.StreamReader) -> None:
        """Read the answer. Raises BrokenStream, or what aiohttp raises."""
        parts, size = [], 0
        async for part in content.iter_any():
            parts.append(part)
            size += len(part)
            if size > ANSWER_BYTES_MAX:
                raise BrokenStream("the answer is larger than 64 MB")
        self.tail, self.tokens = rebuild(b"".join(parts), self._job, self._request_id)

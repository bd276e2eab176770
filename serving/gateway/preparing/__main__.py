"""`python -m serving.gateway.preparing`: bodies read in a process of their own."""

from dataclasses import replace
from typing import Any

from serving.contract.records import ModelRecord
from serving.gateway.dialects.base import Dialect, InferenceRequest
from serving.gateway.dialects.routes import DIALECTS
from serving.gateway.errors import BadRequest
from serving.gateway.preparing.questions import Body, Named, Question, Refused, Reply
from serving.offload.worker import serve

SECONDS_MAX = 10.0
"""More than a gateway waits."""
MEMORY_BYTES = 1024**3


class Preparer:
    """Holds the request between the two questions."""

    def __init__(self) -> None:
        self._dialect: Dialect
        self._request: Any = None
        self._size = 0

    def __call__(self, question: Question, payload: bytes) -> tuple[Reply, bytes]:
        """Answer one."""
        try:
            if isinstance(question, Body):
                return self._read(question, payload), b""
            return self._job(question)
        except BadRequest as error:
            return Refused(error.message, error.code, error.param, error.quoted), b""

    def _read(self, body: Body, data: bytes) -> Named:
        self._dialect = DIALECTS[body.path]
        self._request, self._size = self._dialect.decode(data), len(data)
        return Named(self._request.model)

    def _job(self, model: ModelRecord) -> tuple[InferenceRequest, bytes]:
        request, self._request = self._request, None
        job = self._dialect.job(request, body_bytes=self._size, model=model)
        work = replace(job.work, fields=())
        # Dialect and model are at home where the job goes.
        nothing: Any = None
        bare = replace(job, work=work, dialect=nothing, model=nothing)
        return bare, b"".join(job.work.fields)


if __name__ == "__main__":
    serve(Preparer(), seconds_max=SECONDS_MAX, memory_bytes=MEMORY_BYTES)

"""What a job becomes for an engine."""

import json
from typing import Any

from serving.engine.engine import SPOKEN
from serving.engine.work import EngineRequest, write
from serving.gateway.dialects.dialect import Job


def for_vllm(job: Job, request_id: str = "our-id") -> EngineRequest:
    """Return the request as vLLM gets it."""
    return write(
        job.work,
        served_name=job.model.variant_id,
        capabilities=SPOKEN,
        cache_salt="salt",
        request_id=request_id,
    )


def told_to_vllm(job: Job) -> dict[str, Any]:
    """Return the body that vLLM gets."""
    body: dict[str, Any] = json.loads(b"".join(for_vllm(job).body))
    return body

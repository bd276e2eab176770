"""Celery's signals: each task gets the request id and the trace of the request that sent it, and
its runs are counted in Redis, where `/metrics` reads them for all workers. A count is lost where
Redis does not answer; no task waits for it. Payloads are never logged or traced."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any

import redis
from celery.signals import before_task_publish, task_postrun, task_prerun
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry
from structlog.contextvars import bound_contextvars

from control.request_context import RequestContext, current_request, request_context
from control.telemetry import tracing

NAME = "penstock:tasks"
WAIT_SECONDS = 0.2
WORKER_SERVICE = "penstock-worker"
REQUEST_ID_HEADER = "penstock_request_id"
_running: dict[str, tuple[ExitStack, float, tracing.OptionalSpan]] = {}
"""What surrounds each task of this process, by the task's id."""


@dataclass(frozen=True, slots=True)
class TaskCount:
    """One task's runs that ended in a state (`success`, `failure`), and their milliseconds."""

    task: str
    state: str
    run_count: int
    milliseconds: int


def count_run(task: str, state: str, milliseconds: int) -> None:
    """Count one run."""
    try:
        pipe = _redis().pipeline(transaction=False)
        pipe.hincrby(NAME, f"{task} {state} runs", 1)
        pipe.hincrby(NAME, f"{task} {state} ms", milliseconds)
        pipe.execute()
    except (OSError, redis.RedisError):
        return


def run_counts() -> list[TaskCount]:
    """Return what was counted; nothing while Redis is away."""
    try:
        found = {str(name): int(value) for name, value in _redis().hgetall(NAME).items()}
    except (OSError, redis.RedisError):
        return []
    runs = [name.rsplit(" ", 2)[:2] for name in found if name.endswith(" runs")]
    return [
        TaskCount(task, state, found[f"{task} {state} runs"], found.get(f"{task} {state} ms", 0))
        for task, state in sorted(runs)
    ]


@cache
def _redis() -> "redis.Redis":
    return redis.Redis.from_url(
        settings.CONFIG.redis_url,
        socket_timeout=WAIT_SECONDS,
        socket_connect_timeout=WAIT_SECONDS,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
    )


@before_task_publish.connect
def propagate_context(headers: dict[str, Any] | None = None, **_: Any) -> None:
    """Put the request's id and the trace into the task's headers."""
    if headers is not None:
        headers.update(tracing.trace_headers())
        headers[REQUEST_ID_HEADER] = current_request().request_id


@task_prerun.connect
def on_task_start(task_id: str, task: Any, **_: Any) -> None:
    """Enter what surrounds a task."""
    sent = _sent(task)
    request_id = str(sent.get(REQUEST_ID_HEADER) or "")
    stack = ExitStack()
    stack.enter_context(request_context(RequestContext(request_id=request_id)))
    if request_id:
        stack.enter_context(bound_contextvars(request_id=request_id))
    part = stack.enter_context(
        tracing.span(WORKER_SERVICE, task.name, _carrier(sent), is_task=True)
    )
    _running[task_id] = stack, time.perf_counter(), part


@task_postrun.connect
def on_task_end(task_id: str, task: Any, state: str | None = None, **_: Any) -> None:
    """Leave it, and count the run."""
    stack, begun, part = _running.pop(task_id)
    ended = (state or "unknown").lower()
    part.tell(task.name, {"penstock.task.state": ended})
    if ended == "failure":
        part.fail(ended)
    stack.close()
    count_run(task.name, ended, int((time.perf_counter() - begun) * 1000))


def _sent(task: Any) -> dict[str, Any]:
    """Return a task's headers: where it came by a broker they lie beside its own attributes."""
    found = getattr(task.request, "headers", None) or {}
    names = (REQUEST_ID_HEADER, "traceparent")
    return {name: found.get(name) or getattr(task.request, name, None) for name in names}


def _carrier(sent: dict[str, Any]) -> dict[str, str]:
    return {"traceparent": str(sent.get("traceparent") or "")}

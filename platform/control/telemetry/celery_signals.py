"""Celery's signals: each task gets the request id and the trace of the request that sent it, and
its runs are counted in Redis, where `/metrics` reads them for all workers. Without Redis a count is
lost; no task waits for it. Payloads are never logged or traced."""

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
"""The context, start and span of each running task of this process, by the task's id."""


@dataclass(frozen=True, slots=True)
class TaskCount:
    """One task's runs that ended in a state (`success`, `failure`), and their total time."""

    task: str
    state: str
    run_count: int
    milliseconds: int


def count_run(task: str, state: str, milliseconds: int) -> None:
    try:
        pipe = _redis().pipeline(transaction=False)
        pipe.hincrby(NAME, f"{task} {state} runs", 1)
        pipe.hincrby(NAME, f"{task} {state} ms", milliseconds)
        pipe.execute()
    except (OSError, redis.RedisError):
        return


def run_counts() -> list[TaskCount]:
    """Return the counts of all workers; nothing while Redis is unavailable."""
    try:
        counts = {str(name): int(value) for name, value in _redis().hgetall(NAME).items()}
    except (OSError, redis.RedisError):
        return []
    runs = [name.rsplit(" ", 2)[:2] for name in counts if name.endswith(" runs")]
    return [
        TaskCount(task, state, counts[f"{task} {state} runs"], counts.get(f"{task} {state} ms", 0))
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
    """Enter the task's request context and span."""
    headers = _headers(task)
    request_id = str(headers.get(REQUEST_ID_HEADER) or "")
    stack = ExitStack()
    stack.enter_context(request_context(RequestContext(request_id=request_id)))
    if request_id:
        stack.enter_context(bound_contextvars(request_id=request_id))
    carrier = {"traceparent": str(headers.get("traceparent") or "")}
    span = stack.enter_context(tracing.span(WORKER_SERVICE, task.name, carrier, is_task=True))
    _running[task_id] = stack, time.perf_counter(), span


@task_postrun.connect
def on_task_end(task_id: str, task: Any, state: str | None = None, **_: Any) -> None:
    """Leave the task's context and count the run."""
    stack, started, span = _running.pop(task_id)
    state = (state or "unknown").lower()
    span.tell(task.name, {"penstock.task.state": state})
    if state == "failure":
        span.fail(state)
    stack.close()
    count_run(task.name, state, int((time.perf_counter() - started) * 1000))


def _headers(task: Any) -> dict[str, Any]:
    """Return our headers of a task; behind a broker they are attributes of its request."""
    headers = getattr(task.request, "headers", None) or {}
    names = (REQUEST_ID_HEADER, "traceparent")
    return {name: headers.get(name) or getattr(task.request, name, None) for name in names}

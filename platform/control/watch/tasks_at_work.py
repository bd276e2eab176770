"""What surrounds every task: the request and the trace that asked for it go along, its runs are
counted, its log lines and deeds name the request. Payloads are told to nobody."""

import time
from contextlib import ExitStack
from typing import Any

from celery.signals import before_task_publish, task_postrun, task_prerun
from structlog.contextvars import bound_contextvars

from control import traces
from control.watch import task_counts
from control.whence import Whence, coming_from, whence

SERVICE = "penstock-worker"
REQUEST_ID = "penstock_request_id"
_at_work: dict[str, tuple[ExitStack, float, traces.Part]] = {}
"""What surrounds each task of this process, by the task's id."""


@before_task_publish.connect
def send_along(headers: dict[str, Any] | None = None, **_: Any) -> None:
    """Put the request's id and the trace into the task's headers."""
    if headers is not None:
        headers.update(traces.carried())
        headers[REQUEST_ID] = whence().request_id


@task_prerun.connect
def begin(task_id: str, task: Any, **_: Any) -> None:
    """Enter what surrounds a task."""
    sent = _sent(task)
    request_id = str(sent.get(REQUEST_ID) or "")
    stack = ExitStack()
    stack.enter_context(coming_from(Whence(request_id=request_id)))
    if request_id:
        stack.enter_context(bound_contextvars(request_id=request_id))
    part = stack.enter_context(traces.part(SERVICE, task.name, _carrier(sent), is_task=True))
    _at_work[task_id] = stack, time.perf_counter(), part


@task_postrun.connect
def end(task_id: str, task: Any, state: str | None = None, **_: Any) -> None:
    """Leave it, and count the run."""
    stack, begun, part = _at_work.pop(task_id)
    ended = (state or "unknown").lower()
    part.tell(task.name, {"penstock.task.state": ended})
    if ended == "failure":
        part.fail(ended)
    stack.close()
    task_counts.count(task.name, ended, int((time.perf_counter() - begun) * 1000))


def _sent(task: Any) -> dict[str, Any]:
    """Return a task's headers: where it came by a broker they lie beside its own attributes."""
    found = getattr(task.request, "headers", None) or {}
    names = (REQUEST_ID, "traceparent")
    return {name: found.get(name) or getattr(task.request, name, None) for name in names}


def _carrier(sent: dict[str, Any]) -> dict[str, str]:
    return {"traceparent": str(sent.get("traceparent") or "")}

"""How many tasks ran and how long they took, over all workers: counted in Redis, where whoever asks
control for its metrics reads it. A count that Redis did not take is lost; no task waits for one."""

from dataclasses import dataclass
from functools import cache

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

NAME = "penstock:tasks"
WAIT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class TaskCount:
    """One task's runs that ended in a state (`success`, `failure`), and their milliseconds."""

    task: str
    state: str
    run_count: int
    milliseconds: int


def count(task: str, state: str, milliseconds: int) -> None:
    """Count one run."""
    try:
        pipe = _redis().pipeline(transaction=False)
        pipe.hincrby(NAME, f"{task} {state} runs", 1)
        pipe.hincrby(NAME, f"{task} {state} ms", milliseconds)
        pipe.execute()
    except (OSError, redis.RedisError):
        return


def counts() -> list[TaskCount]:
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

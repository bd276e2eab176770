"""vLLM's own token counters, less what the fleet's probes used: the engine's word on usage."""

import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families

from serving.contract.replica import ReplicaRecord

T = TypeVar("T")


def read_metrics(url: str) -> dict[str, float]:
    """Return the sum of each sample of a Prometheus page over its labels."""
    with urllib.request.urlopen(url, timeout=5) as reply:
        page = reply.read().decode()
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return sums


def settle(
    read: Callable[[], T], *, quiet_seconds: float = 1.0, timeout_seconds: float = 60.0
) -> T:
    """Return what `read()` says once it stands still for `quiet_seconds`."""
    deadline, last, since = time.monotonic() + timeout_seconds, read(), time.monotonic()
    while time.monotonic() - since < quiet_seconds:
        if time.monotonic() > deadline:
            raise AssertionError(f"the counters never stood still: {last}")
        time.sleep(0.1)
        now = read()
        if now != last:
            last, since = now, time.monotonic()
    return last


def engine_tokens(replicas: Iterable[ReplicaRecord]) -> Counter[str]:
    """Return the tokens that engines took in and gave out for customers: without probes."""
    tokens: Counter[str] = Counter()
    for replica in replicas:
        metrics = read_metrics(f"{replica.url}/metrics")
        tokens["input"] += int(metrics["vllm:prompt_tokens_total"]) - replica.probe_input_tokens
        made = int(metrics["vllm:generation_tokens_total"])
        tokens["output"] += made - replica.probe_output_tokens
    return tokens

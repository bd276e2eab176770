"""vLLM's own token counters, less what the fleet's probes used: the engine's word on usage."""

import time
import urllib.request
from collections import Counter

from prometheus_client.parser import text_string_to_metric_families


def read_metrics(url: str) -> dict[str, float]:
    """Return the sum of each sample of a Prometheus page over its labels."""
    with urllib.request.urlopen(url, timeout=5) as reply:
        page = reply.read().decode()
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return sums


def settle(read, *, quiet_seconds: float = 1.0, timeout_seconds: float = 30.0):
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


def engine_tokens(replica_urls: list[str]) -> Counter[str]:
    """Return the tokens that the engines at `replica_urls` say they took in and gave out."""
    tokens: Counter[str] = Counter()
    for url in replica_urls:
        metrics = read_metrics(f"{url}/metrics")
        tokens["input"] += int(metrics["vllm:prompt_tokens_total"])
        tokens["output"] += int(metrics["vllm:generation_tokens_total"])
    return tokens

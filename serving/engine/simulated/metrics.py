"""`/metrics` under vLLM's names, read from the engine's plain counts at each scrape."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from serving.engine.simulated.engine import SimulatedEngine

COUNTERS = (
    "prompt_tokens",
    "prompt_tokens_cached",
    "generation_tokens",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "num_preemptions",
)
LABELS = ("engine", "model_name")
REASONS = ("stop", "length", "abort", "error")


class EngineCollector(Collector):
    """Turns the engine's counts into metric families."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine = engine
        self.values = ("0", engine.settings.models[0])

    def collect(self) -> Iterator[Metric]:
        """Yield every family once."""
        gauges = {
            "num_requests_running": float(self.engine.slots_used),
            "num_requests_waiting": float(len(self.engine.waiting)),
            "kv_cache_usage_perc": self.engine.kv_cache_usage,
        }
        for name, value in gauges.items():
            gauge = GaugeMetricFamily(f"vllm:{name}", name, labels=LABELS)
            gauge.add_metric(self.values, value)
            yield gauge
        for name in COUNTERS:
            counter = CounterMetricFamily(f"vllm:{name}", name, labels=LABELS)
            counter.add_metric(self.values, self.engine.counts[name])
            yield counter
        yield GaugeMetricFamily(
            "simulated:sequences_max", "At once so far", value=self.engine.sequences_max
        )
        if size := self.engine.settings.kv_cache_tokens:
            labels = (*LABELS, "kv_cache_size_tokens")
            info = GaugeMetricFamily("vllm:cache_config_info", "Of the KV cache", labels=labels)
            info.add_metric((*self.values, str(size)), 1.0)
            yield info
        yield self._endings()

    def _endings(self) -> Metric:
        labels = ("engine", "finished_reason", "model_name")
        endings = CounterMetricFamily("vllm:request_success", "Requests by ending", labels=labels)
        engine_index, model = self.values
        for reason in REASONS:
            endings.add_metric((engine_index, reason, model), self.engine.finished[reason])
        return endings


def registry_of(engine: SimulatedEngine) -> CollectorRegistry:
    """Return a registry that holds this engine's metrics and nothing else."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine))
    return registry


def render(registry: CollectorRegistry) -> bytes:
    """Return the text exposition of a registry."""
    return generate_latest(registry)

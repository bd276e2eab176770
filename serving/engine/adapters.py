"""The engines there are, by the name a deployment gives them."""

from collections.abc import Mapping
from pathlib import Path

from serving.engine.adapter import EngineAdapter, ExternalAdapter
from serving.engine.simulated.adapter import SimulatedAdapter
from serving.engine.vllm import VllmAdapter, installed_device, spare_threads


def adapters(
    *, otlp_endpoint: str | None, kv_cache_gib: int, tokenizers: Path | None = None
) -> Mapping[str, EngineAdapter]:
    """Return one adapter per engine for this machine; `tokenizers` is where copies are kept."""
    vllm = VllmAdapter(installed_device(), otlp_endpoint, kv_cache_gib, spare_threads(), tokenizers)
    return {engine.name: engine for engine in (vllm, SimulatedAdapter(), ExternalAdapter())}

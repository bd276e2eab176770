"""The engines there are, by the name a deployment gives them."""

from collections.abc import Mapping
from pathlib import Path

from serving.engine.engine import Engine
from serving.engine.external import External
from serving.engine.simulated.adapter import Simulated
from serving.engine.vllm import Vllm, installed_device, spare_threads


def adapters(
    *, otlp_endpoint: str | None, kv_cache_gib: int, tokenizers: Path | None = None
) -> Mapping[str, Engine]:
    """Return one adapter per engine for this machine; `tokenizers` is where copies are kept."""
    vllm = Vllm(installed_device(), otlp_endpoint, kv_cache_gib, spare_threads(), tokenizers)
    return {engine.name: engine for engine in (vllm, Simulated(), External())}

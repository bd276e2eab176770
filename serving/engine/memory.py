"""What a replica's memory goes to, estimated from the folder of its weights before anything starts:
the weights, and the KV cache of the tokens that it works on."""

from itertools import pairwise
from pathlib import Path

import msgspec

from serving.contract.codec import NOT_JSON
from serving.contract.deployment_plan import MemoryEstimate
from serving.contract.records import DeploymentRecord
from serving.engine.weights import WeightsUnreadable, weights_bytes

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
KV_DTYPE = "--kv-cache-dtype"
FULL_ATTENTION = "full_attention"


class AttentionConfig(msgspec.Struct, frozen=True):
    """The part of a `config.json` that decides what a token takes in the KV cache."""

    num_hidden_layers: int = 0
    num_attention_heads: int = 0
    num_key_value_heads: int | None = None
    hidden_size: int = 0
    head_dim: int | None = None
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int = 0
    layer_types: list[str] | None = None
    sliding_window: int | None = None
    use_sliding_window: bool = True
    dtype: str | None = None
    torch_dtype: str | None = None
    max_position_embeddings: int = 0
    text_config: "AttentionConfig | None" = None

    @property
    def layer_count(self) -> int:
        """How many layers keep every token: those with a sliding window or a state keep few, so
        that the estimate is never more than what the engine needs."""
        if self.layer_types is not None:
            return self.layer_types.count(FULL_ATTENTION)
        is_sliding = self.sliding_window is not None and self.use_sliding_window
        return 0 if is_sliding else self.num_hidden_layers

    @property
    def token_values(self) -> int:
        """How many numbers a layer keeps of a token."""
        if self.kv_lora_rank is not None:
            return self.kv_lora_rank + self.qk_rope_head_dim
        heads = self.num_key_value_heads or self.num_attention_heads
        head_dim = self.head_dim or self.hidden_size // max(1, self.num_attention_heads)
        return 2 * heads * head_dim

    @property
    def value_bytes(self) -> int:
        """The size of a number of the cache, that of the weights where nothing else is said."""
        return DTYPE_BYTES.get(self.dtype or self.torch_dtype or "", 2)


def memory_estimate(deployment: DeploymentRecord) -> MemoryEstimate | None:
    """Return what a replica needs, None for weights that are no folder here.

    Raises WeightsUnreadable.
    """
    folder = Path(deployment.weights)
    if not folder.is_dir():
        return None
    path = folder / "config.json"
    try:
        config = msgspec.json.decode(path.read_bytes(), type=AttentionConfig)
    except (OSError, *NOT_JSON) as error:
        raise WeightsUnreadable(f"{path}: {error}") from error
    config = config.text_config or config
    has_small_cache = (argument_value(deployment, KV_DTYPE) or "").startswith("fp8")
    value_bytes = 1 if has_small_cache else config.value_bytes
    keeps_tokens = deployment.task == "generate"
    token_bytes = config.layer_count * config.token_values * value_bytes if keeps_tokens else 0
    return MemoryEstimate(
        weights_bytes=weights_bytes(deployment.weights),
        token_bytes=token_bytes,
        context_tokens=deployment.resources.context_tokens or config.max_position_embeddings,
        slots=deployment.slots,
    )


def argument_value(deployment: DeploymentRecord, *flags: str) -> str | None:
    """Return the value of an engine argument, the last one if it is given twice; None if it is not
    given."""
    said = (part for each in deployment.engine_arguments for part in each.split("=", 1))
    found = [value for flag, value in pairwise(said) if flag in flags]
    return found[-1] if found else None

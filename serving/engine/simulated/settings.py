"""What a simulated engine is told at its start."""

from dataclasses import dataclass

from serving.contract.codec import require


@dataclass(frozen=True, slots=True)
class Settings:
    """Speeds are tokens a second; `itl_seconds` of 0 answers at once, without pacing.

    Left to itself an answer has `output_tokens` tokens, give or take half, by the prompt's hash;
    a vector has as many `dimensions`.
    """

    models: tuple[str, ...] = ("simulated",)
    host: str = "127.0.0.1"
    port: int = 8000
    seed: int = 0
    context_tokens: int = 8_192
    slots: int = 32
    output_tokens: int = 64
    dimensions: int = 64
    itl_seconds: float = 0.0
    prefill_tokens_per_second: float = 0.0
    block_size: int = 32
    cache_blocks: int = 4_096
    load_seconds: float = 0.0

    def __post_init__(self) -> None:
        require(bool(self.models), "models", self.models, "at least one name")
        require(0 <= self.port <= 65_535, "port", self.port, "0 to 65535")
        for name in ("context_tokens", "slots", "output_tokens", "dimensions", "block_size"):
            value = getattr(self, name)
            require(value > 0, name, value, "at least 1")
        for name in ("itl_seconds", "prefill_tokens_per_second", "cache_blocks", "load_seconds"):
            value = getattr(self, name)
            require(value >= 0, name, value, "0 or more")

    @property
    def is_paced(self) -> bool:
        """Whether tokens take time."""
        return self.itl_seconds > 0 or self.prefill_tokens_per_second > 0

"""Facts that a folder of weights states about itself: its variants, sizes and quality reports."""

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from control.errors import InvalidValue
from serving.engine.weights import weights_digest

PARENT = "bf16"
QUANTIZED = ("int8", "int4")
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
OUTPUT_TOKENS_MAX = 8192
HEADER_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Weights:
    """One variant's weights: where they are, and what `config.json` says of them."""

    location: str
    precision: str
    context_tokens: int
    vocabulary_size: int
    hidden_size: int | None
    parent: str | None = None
    parameter_count: int | None = None
    size_bytes: int | None = None
    quality: dict[str, Any] | None = None

    @property
    def digest(self) -> str:
        """The digest of the folder's content now; empty for a Hugging Face id, which is pinned."""
        folder = Path(self.location)
        return weights_digest(folder) if folder.is_dir() else ""

    @property
    def output_tokens_max(self) -> int:
        """The most tokens of one answer."""
        return min(self.context_tokens, OUTPUT_TOKENS_MAX)


def find_weights(location: str) -> list[Weights]:
    """Return the variants at a place: a folder of variants (bf16, int8, int4), the bf16 one of
    them, a single folder, or a Hugging Face id. Raises InvalidValue where there is no
    config.json."""
    folder = Path(location)
    if not folder.is_dir():
        return [_of_hub(location)]
    folder = folder.resolve()
    family = folder.parent if folder.name == PARENT else folder
    if not (family / PARENT / "config.json").exists():
        return [_of_folder(folder)]
    names = (PARENT, *(name for name in QUANTIZED if (family / name / "config.json").exists()))
    return [_of_folder(family / name, name) for name in names]


def _of_folder(folder: Path, precision: str | None = None) -> Weights:
    config = _read_json(folder / "config.json")
    if config is None:
        raise InvalidValue(f"{folder} has no config.json.", param="weights")
    files = sorted(folder.glob("*.safetensors"))
    parent = PARENT if precision in QUANTIZED else None
    return Weights(
        location=str(folder),
        precision=precision or precision_of(config),
        context_tokens=_figure(config, "max_position_embeddings"),
        vocabulary_size=_figure(config, "vocab_size"),
        hidden_size=_figure_if_any(config, "hidden_size"),
        parent=parent,
        # Packed weights hide their number: a quantized variant has its parent's.
        parameter_count=sum(map(_parameter_count, files)) or None if parent is None else None,
        size_bytes=sum(file.stat().st_size for file in files) or None,
        quality=_read_json(folder / "quality.json"),
    )


def _of_hub(name: str) -> Weights:
    """Read the config of a Hugging Face id, from its cache where it has one, and pin it to the
    commit that it has now, unless the id names one."""
    try:
        # Comes with the engine; without it there is nothing to run such a model on.
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise InvalidValue(f"{name} is no folder.", param="weights") from error
    try:
        repository, _, revision = name.partition("@")
        path = Path(hf_hub_download(repository, "config.json", revision=revision or None))
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidValue(
            f"{name} is neither a folder nor a model: {reason}", param="weights"
        ) from error
    config = _read_json(path) or {}
    return Weights(
        # The cache has a folder for each commit.
        location=f"{repository}@{path.parent.name}",
        precision=precision_of(config),
        context_tokens=_figure(config, "max_position_embeddings"),
        vocabulary_size=_figure(config, "vocab_size"),
        hidden_size=_figure_if_any(config, "hidden_size"),
    )


def precision_of(config: dict[str, Any]) -> str:
    """Return a name for the precision that a config.json tells."""
    if quantization := config.get("quantization_config"):
        return str(quantization.get("quant_method", "quantized"))[:16]
    dtype = config.get("dtype") or config.get("torch_dtype") or "bfloat16"
    return DTYPES.get(str(dtype), str(dtype)[:16])


def _figure(config: dict[str, Any], name: str) -> int:
    value = _figure_if_any(config, name)
    if value is None:
        raise InvalidValue(f"config.json has no {name}.", param="weights")
    return value


def _figure_if_any(config: dict[str, Any], name: str) -> int | None:
    value = config.get(name) or config.get("text_config", {}).get(name)
    return value if isinstance(value, int) else None


def _read_json(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _parameter_count(file: Path) -> int:
    """Return how many numbers a safetensors file holds, from its header (its length as 8 bytes,
    little-endian, then JSON)."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(HEADER_LENGTH_BYTES), "little")
        header = json.loads(stream.read(length))
    return sum(prod(each["shape"]) for name, each in header.items() if name != "__metadata__")

"""What a folder of weights says about itself, read without loading it."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from serving.contract.codec import NOT_JSON

SUFFIXES = (".safetensors", ".bin", ".gguf")


class _Config(msgspec.Struct, frozen=True):
    max_position_embeddings: int | None = None
    vocab_size: int | None = None
    architectures: list[str] = []


class WeightsServingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What weights ask of vLLM: the parser that finds calls of tools in what they say, and whether
    calls are held to the tools' names (`function`) or to what the request says alone (`auto`)."""

    tool_call_parser: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_]{1,64}\Z")]
    tool_strict_level: Literal["auto", "function"] = "auto"


class WeightsUnreadable(Exception):
    """A folder of weights whose `config.json` or `serving.json` cannot be read."""


def weights_bytes(weights: str) -> int:
    """Return the size of a local folder's weights; 0 for a name on a hub."""
    folder = Path(weights)
    if not folder.is_dir():
        return 0
    return sum(file.stat().st_size for file in folder.iterdir() if file.suffix in SUFFIXES)


def context_tokens(folder: Path) -> int | None:
    """Return the longest context the weights were made for, None where they do not say.

    Raises WeightsUnreadable.
    """
    path = folder / "config.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Config).max_position_embeddings
    except (OSError, *NOT_JSON) as error:
        raise WeightsUnreadable(f"{path}: {error}") from error


def serving_of(weights: str) -> WeightsServingConfig | None:
    """Return what a local folder's `serving.json` says; None where there is none, and for a name
    on a hub. Raises WeightsUnreadable."""
    path = Path(weights) / "serving.json"
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=WeightsServingConfig)
    except (OSError, *NOT_JSON) as error:
        raise WeightsUnreadable(f"{path}: {error}") from error


def check_weights(weights: str) -> None:
    """Raise WeightsUnreadable when `weights` looks like a local folder and is not usable."""
    folder = Path(weights)
    if folder.is_absolute() or weights.startswith("."):
        context_tokens(folder)
        serving_of(weights)

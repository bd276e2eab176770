"""What a folder of weights says about itself, read without loading it; and the digest that
identifies its content: `python -m serving.engine.weights FOLDER` prints it."""

import argparse
import hashlib
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from serving.contract.codec import NOT_JSON

SAFETENSORS = ".safetensors"
PICKLED = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})
"""Files that can run code when they are loaded."""
DIGESTED = frozenset({SAFETENSORS, ".json", ".txt", ".jinja", ".model", ".tiktoken"})
"""What an engine reads of a folder."""
REPORT = "quality.json"
"""An evaluation of the weights, which is not a part of them."""


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
    """A folder of weights that is not loaded: a file cannot be read or can run code, or the content
    is not what the variant's digest says."""


def weights_bytes(weights: str) -> int:
    """Return the size of a local folder's weights; 0 for a name on a hub."""
    folder = Path(weights)
    if not folder.is_dir():
        return 0
    return sum(file.stat().st_size for file in folder.glob(f"*{SAFETENSORS}"))


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


def check_weights(weights: str, digest: str | None = None) -> str | None:
    """Return the digest of a local folder; None for a source on a hub or in object storage, which
    only the engine reads.

    Raises WeightsUnreadable for a folder that is not usable, that holds pickled weights, or whose
    digest is not the one given.
    """
    folder = Path(weights)
    if not folder.is_absolute() and not weights.startswith("."):
        return None
    context_tokens(folder)
    serving_of(weights)
    try:
        _require_safetensors(folder)
        found = weights_digest(folder)
    except OSError as error:
        raise WeightsUnreadable(f"{weights}: {error}") from error
    if digest not in (None, found):
        raise WeightsUnreadable(
            f"{weights} was changed: its digest is {found}, the variant's is {digest};"
            " add a variant for the new weights"
        )
    return found


def weights_digest(folder: Path) -> str:
    """Return the SHA-256 of a folder's manifest: for each file that an engine reads, sorted by
    path, a line of its SHA-256, its size in bytes and its path. Raises OSError."""
    manifest = hashlib.sha256()
    for name, path in sorted(
        (path.relative_to(folder).as_posix(), path) for path in _files(folder)
    ):
        stat = path.stat()
        content = _sha256(path, stat.st_size, stat.st_mtime_ns, stat.st_ino)
        manifest.update(f"{content} {stat.st_size} {name}\n".encode())
    return manifest.hexdigest()


def _require_safetensors(folder: Path) -> None:
    pickled = sorted(path.name for path in folder.rglob("*") if path.suffix in PICKLED)
    if pickled:
        raise WeightsUnreadable(
            f"{folder} holds {pickled[0]}, which can run code when it is loaded; convert the"
            " weights to safetensors and remove it"
        )
    if not any(folder.glob(f"*{SAFETENSORS}")):
        raise WeightsUnreadable(f"{folder} has no {SAFETENSORS} file")


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix in DIGESTED and path.name != REPORT and not is_hidden and path.is_file():
            yield path


@lru_cache(maxsize=10_000)
def _sha256(path: Path, size: int, mtime_ns: int, inode: int) -> str:
    """Return the digest of a file, read again only if its size, time or inode changed."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Print the digest of a folder, for a variant's `weights_digest`."""
    parser = argparse.ArgumentParser(prog="python -m serving.engine.weights", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    try:
        sys.stdout.write(f"{check_weights(str(folder.absolute()))}\n")
    except WeightsUnreadable as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()

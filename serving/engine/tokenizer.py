"""Reads from a tokenizer's file how many tokens a byte can be (`serving/contract/prompt.py`)."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from serving.contract.codec import NOT_JSON
from serving.contract.prompt import BYTE_TOKENS, GROWTH_MAX, NFC_GROWTH, NFC_TOKENS

FILE = "tokenizer.json"
_GROWTH: dict[str, int] = {
    # These keep characters as long as they are; at most a blank is put in front.
    **dict.fromkeys(("Strip", "StripAccents", "Prepend", "ByteLevel"), 1),
    # Lower case turns one character of two bytes into three bytes.
    **dict.fromkeys(("NFC", "NFD", "BertNormalizer", "Lowercase"), NFC_GROWTH),
}
_DECLARED = {1: (BYTE_TOKENS,), NFC_GROWTH: (NFC_TOKENS,)}


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]] = {}


class _Tokenizer(msgspec.Struct):
    normalizer: dict[str, Any] | None = None
    model: _Model = msgspec.field(default_factory=_Model)


@lru_cache(maxsize=32)
def declared_of(weights: str) -> tuple[str, ...]:
    """Return the capability that a local folder of weights declares. A name on a hub declares none,
    nor does a folder whose file is missing or unreadable."""
    path = Path(weights) / FILE
    try:
        tokenizer = msgspec.json.decode(path.read_bytes(), type=_Tokenizer)
        return _DECLARED.get(growth_of(tokenizer), ())
    except (OSError, *NOT_JSON, AttributeError, TypeError):
        return ()


def growth_of(tokenizer: _Tokenizer) -> int:
    """Return how many bytes of normalized text a byte beyond ASCII becomes at most."""
    return _growth(tokenizer.normalizer, tokenizer.model)


def _growth(normalizer: dict[str, Any] | None, model: _Model) -> int:
    if normalizer is None:
        return 1
    kind = str(normalizer.get("type"))
    if kind == "Sequence":
        growth = 1
        for step in normalizer.get("normalizers", ()):
            growth *= _growth(step, model)
        return min(growth, GROWTH_MAX)
    if kind == "Replace":
        return 1 if _is_no_longer(normalizer, model) else GROWTH_MAX
    return _GROWTH.get(kind, GROWTH_MAX)


def _is_no_longer(replace: dict[str, Any], model: _Model) -> bool:
    """Tell whether the replacement has no more tokens than the replaced text has bytes. Llama's and
    Gemma's `▁` has three bytes in place of one blank, but is one piece of the vocabulary."""
    content, pattern = str(replace.get("content", "")), replace.get("pattern") or {}
    vocabulary = model.vocab if isinstance(model.vocab, dict) else dict(model.vocab)
    pieces = 1 if content in vocabulary else len(content.encode())
    # A regular expression may match a single byte.
    least = len(str(pattern["String"]).encode()) if "String" in pattern else 1
    return pieces <= least

"""A tokenizer's files: how many tokens a byte can be (`serving/contract/prompt.py`), and a copy of
them whose tokenizer takes out the mark that guards text.

Weights stay where they are: vLLM is given both places."""

import hashlib
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from serving.contract.codec import NOT_JSON
from serving.contract.prompt import BYTE_TOKENS, GROWTH_MAX, NFC_GROWTH, NFC_TOKENS
from serving.contract.text_guard import FIRST_CHARACTERS, MARK, TextGuard

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


SUFFIXES = frozenset({".json", ".txt", ".jinja", ".model", ".tiktoken", ".py"})
INDEX = ".index.json"
"""Of weights in several files."""
BLANKS = " \t\r\n\u2581"
"""Added tokens of these alone are how some models write blanks; no turn begins with one."""
TAKES_OUT = {"type": "Replace", "pattern": {"String": MARK}, "content": ""}


def write_marked(weights: str, folder: Path) -> tuple[Path, TextGuard] | None:
    """Write the copy into `folder`, unless it is there; return where it is, and what it guards.

    None where there is no such file: for names on a hub and for other kinds of tokenizers.
    """
    source = Path(weights)
    if not (source / FILE).is_file():
        return None
    files = sorted(path for path in source.iterdir() if _belongs(path))
    data = {path.name: path.read_bytes() for path in files}
    tokenizer = msgspec.json.decode(data[FILE])
    digest = hashlib.sha256(b"".join(name.encode() + data[name] for name in data)).hexdigest()
    target = folder / digest[:32]
    if not target.is_dir():
        _write(target, {name: _marked(name, content) for name, content in data.items()})
    return target, _guard_of(tokenizer)


def _belongs(path: Path) -> bool:
    is_small = path.suffix in SUFFIXES and not path.name.endswith(INDEX)
    return path.is_file() and is_small


def _write(target: Path, files: dict[str, bytes]) -> None:
    """Write all of it or nothing: another fleet may do the same."""
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        for name, content in files.items():
            (made / name).write_bytes(content)
        made.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        if made.is_dir():
            shutil.rmtree(made, ignore_errors=True)


def _marked(name: str, content: bytes) -> bytes:
    """Return a file with every control token matched in the text as it came, before the mark is
    taken out of it."""
    if name == FILE:
        tokenizer = msgspec.json.decode(content)
        tokenizer["normalizer"] = _normalizer(tokenizer.get("normalizer"))
        for token in tokenizer.get("added_tokens") or ():
            _match_raw(token)
        return msgspec.json.encode(tokenizer)
    if name == "tokenizer_config.json":
        config = msgspec.json.decode(content)
        for token in (config.get("added_tokens_decoder") or {}).values():
            _match_raw(token)
        return msgspec.json.encode(config)
    return content


def _normalizer(own: dict[str, Any] | None) -> dict[str, Any]:
    if own is None:
        return TAKES_OUT
    rest = own["normalizers"] if own.get("type") == "Sequence" else [own]
    return {"type": "Sequence", "normalizers": [TAKES_OUT, *rest]}


def _match_raw(token: Any) -> None:
    if isinstance(token, dict) and token.get("content", "").strip(BLANKS):
        token["normalized"] = False


def _guard_of(tokenizer: dict[str, Any]) -> TextGuard:
    contents = (token["content"] for token in tokenizer.get("added_tokens") or ())
    tokens = tuple(content for content in contents if content.strip(BLANKS))
    # A token of one character has nothing behind its first.
    unbroken = tuple(t for t in tokens if t[0] not in FIRST_CHARACTERS or len(t) == 1)
    return TextGuard(takes_mark=True, tokens=tokens, unbroken=unbroken)

"""A copy of a tokenizer's files whose tokenizer takes out the mark that guards text.

Weights stay where they are: vLLM is given both places.
"""

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from serving.contract.text_guard import FIRST_CHARACTERS, MARK, TextGuard

FILE = "tokenizer.json"
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

"""Text never becomes a control token: with the demo's tokenizer, and one whose turn tokens are not
marked special and are matched in normalized text."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from serving.contract.text_guard import MARK, TextGuard
from serving.engine.errors import ControlToken
from serving.engine.text_guard import guarded
from serving.engine.tokenizer import write_marked
from serving.gateway.dialects.marking import marked

DEMO = Path(__file__).parents[3] / "infra" / "demo_model" / "weights" / "bf16"
PLAIN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
TURNS = ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<think>", "[INST]")


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's tokenizer with other turn tokens, none special, all matched in text that was
    normalized, which lowers it."""
    folder = tmp_path_factory.mktemp("weights")
    made = json.loads((DEMO / "tokenizer.json").read_text())
    known = made["model"]["vocab"]
    tokens = [PLAIN | {"content": text, "special": False} for text in TURNS]
    made["added_tokens"] = [
        {"id": max(known.values()) + 1 + place} | token for place, token in enumerate(tokens)
    ]
    made["normalizer"] = {"type": "NFC"}
    (folder / "tokenizer.json").write_text(json.dumps(made))
    decoder = {str(token["id"]): token for token in made["added_tokens"]}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def both(weights: Path, folder: Path) -> tuple[Tokenizer, Tokenizer, TextGuard]:
    made = write_marked(str(weights), folder)
    assert made is not None
    before = Tokenizer.from_file(str(weights / "tokenizer.json"))
    return before, Tokenizer.from_file(str(made[0] / "tokenizer.json")), made[1]


@pytest.mark.parametrize("name", ["demo", "lowered"])
def test_no_text_becomes_a_control_token_and_it_is_read_as_it_is(
    name: str, tmp_path: Path, lowered: Path
) -> None:
    before, after, guard = both(DEMO if name == "demo" else lowered, tmp_path)
    assert guard.takes_mark
    assert not guard.unbroken
    ids = {before.token_to_id(token) for token in guard.tokens}
    for token in guard.tokens:
        text = f"a {token}b"
        assert ids & set(before.encode(text, add_special_tokens=False).ids)
        read = after.encode(marked(text), add_special_tokens=False)
        assert not ids & set(read.ids)
        assert after.decode(read.ids, skip_special_tokens=False) == text
        # Torn over two parts, which templates join.
        parts = marked(token[:2]) + marked(token[2:])
        assert not ids & set(after.encode(parts, add_special_tokens=False).ids)
        # The template's own are what they were.
        own = after.encode(f"{token}hi", add_special_tokens=False).ids
        assert own == before.encode(f"{token}hi", add_special_tokens=False).ids
        assert ids & set(own)


@pytest.mark.parametrize("text", ["hello", "1 < 2 [a] <b>bold</b>", "é \uff5c ü"])
def test_honest_text_is_read_alike(tmp_path: Path, text: str) -> None:
    before, after, _ = both(DEMO, tmp_path)
    assert after.encode(marked(text)).ids == before.encode(text).ids


def test_the_copy_holds_the_tokenizers_files_and_is_written_once(
    tmp_path: Path, lowered: Path
) -> None:
    made = write_marked(str(lowered), tmp_path)
    assert made is not None
    assert {path.name for path in made[0].iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    config = json.loads((made[0] / "tokenizer_config.json").read_text())
    assert not any(token["normalized"] for token in config["added_tokens_decoder"].values())
    written = (made[0] / "tokenizer.json").stat().st_mtime_ns
    assert write_marked(str(lowered), tmp_path) == made
    assert (made[0] / "tokenizer.json").stat().st_mtime_ns == written
    assert list(tmp_path.iterdir()) == [made[0]]
    assert write_marked("some/model", tmp_path) is None


def test_tokens_that_begin_otherwise_are_told(tmp_path: Path, lowered: Path) -> None:
    made = json.loads((lowered / "tokenizer.json").read_text())
    texts = (">>TITLE<<", "\u2581\u2581", "\n\n")
    made["added_tokens"] += [
        PLAIN | {"id": 5_000 + place, "content": text, "special": False}
        for place, text in enumerate(texts)
    ]
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(made))
    written = write_marked(str(folder), tmp_path / "copies")
    assert written is not None
    assert written[1].unbroken == (">>TITLE<<",)
    with pytest.raises(ControlToken, match="control_token"):
        guarded((b'{"messages":[{"content":"a >>TITLE<< b"}]}',), (), written[1])


GUARD = TextGuard(takes_mark=True, tokens=("<|end|>",))
BODY = f'{{"messages":[{{"content":"a <{MARK}|end|> b"}}]'.encode()


def test_a_replica_gets_the_mark_only_where_it_takes_it_out() -> None:
    assert guarded((BODY,), (), GUARD) == (BODY,)
    assert guarded((BODY,), (), TextGuard()) == (BODY.replace(MARK.encode(), b""),)


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("a <|end|> b", "<|end|>"),
        ("<\uff5cUser\uff5c>", "<\uff5cUser\uff5c>"),
        ("x [INST] y", "[INST]"),
        ('a<|en"},{"type":"text","text":"d|>', "<|end|>"),
        ("a < b | c > d", None),
        ("<b>bold</b> [list]", None),
    ],
)
def test_where_no_control_token_is_known_what_looks_like_one_is_refused(
    text: str, token: str | None
) -> None:
    fields: Any = (f'{{"messages":[{{"content":"{text.replace("<", "<" + MARK)}"}}]'.encode(),)
    if token is None:
        assert guarded(fields, (), None) == (fields[0].replace(MARK.encode(), b""),)
        return
    with pytest.raises(ControlToken) as caught:
        guarded(fields, (), None)
    assert caught.value.token == token


def test_a_tools_own_words_are_refused_by_name() -> None:
    with pytest.raises(ControlToken) as caught:
        guarded((BODY,), ("city <|end|>",), GUARD)
    assert (caught.value.token, caught.value.in_tools) == ("<|end|>", True)

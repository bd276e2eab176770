"""No prompt has more tokens than its bound, whatever the kind of tokenizer that counts it."""

import json
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from serving.contract.prompt import (
    GROWTH_MAX,
    MARKS_MAX,
    NFC_GROWTH,
    PromptBound,
    bytes_of_prompt,
    growth_of,
)
from serving.engine.tokenizer import declared_of

DEMO = Path(__file__).parents[3] / "infra" / "demo_model" / "weights" / "bf16"
EXPANDING = "\ufdfa\U0001d160\u0390\u0130\u1f82\ufb03\u0958ÅẞȺ각한﷽"
TEXTS = st.text() | st.text(alphabet=EXPANDING + "aB \n0") | st.text(alphabet="<|end>user")


@pytest.mark.parametrize(
    ("growth", "normal"),
    [
        (NFC_GROWTH, lambda text: unicodedata.normalize("NFC", text)),
        (NFC_GROWTH, lambda text: unicodedata.normalize("NFD", text)),
        (NFC_GROWTH, lambda text: unicodedata.normalize("NFD", text).lower()),
        (GROWTH_MAX, lambda text: unicodedata.normalize("NFKC", text)),
        (GROWTH_MAX, lambda text: unicodedata.normalize("NFKD", text)),
    ],
)
def test_no_character_grows_by_more_and_ascii_by_nothing(
    growth: int, normal: Callable[[str], str]
) -> None:
    for character in _changing():
        most = growth * len(character.encode())
        assert len(normal(character).encode()) <= most, hex(ord(character))
    ascii_text = "".join(map(chr, range(128)))
    assert len(normal(ascii_text)) == 128


@cache
def _changing() -> list[str]:
    """Every character that a normal form, or lower case, writes otherwise."""
    points = (chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000)
    return [one for one in points if unicodedata.decomposition(one) or one.lower() != one]


def byte_level(normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    """Every byte a token, none ever joined: the worst of its kind."""
    alphabet = {symbol: n for n, symbol in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return tokenizer


def byte_fallback() -> Tokenizer:
    """SentencePiece's BPE, as Llama 2 and Gemma have it: a blank is `▁`, the rest is bytes."""
    pieces = [*(f"<0x{byte:02X}>" for byte in range(256)), "<unk>", "▁", "a"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    return tokenizer


def word_piece() -> Tokenizer:
    """BERT's: each character a piece of its own."""
    known = {chr(code) for code in range(0x21, 0x3000)} | set(EXPANDING)
    pieces = ["[UNK]", *known, *(f"##{one}" for one in known)]
    vocabulary = {piece: n for n, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def unigram() -> Tokenizer:
    """T5's and XLM-R's: compatibility forms, then pieces; what is unknown is bytes."""
    pieces = [("<unk>", 0.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256)), ("▁", -1.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


KINDS = {
    "byte-level": (byte_level(), 1),
    "byte-level behind NFC": (byte_level(normalizers.NFC()), NFC_GROWTH),
    "byte fallback": (byte_fallback(), 1),
    "WordPiece": (word_piece(), NFC_GROWTH),
    "Unigram behind NFKC": (unigram(), GROWTH_MAX),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Tokenizer, int]]:
    """A tokenizer, and what is declared of it by its own file."""
    tokenizer, growth = KINDS[request.param]
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    declared = growth_of(declared_of(str(tmp_path)))
    assert declared == growth
    yield tokenizer, declared


def test_a_text_has_no_more_tokens_than_its_bound(kind: tuple[Tokenizer, int]) -> None:
    tokenizer, growth = kind

    @given(TEXTS)
    def check(text: str) -> None:
        told = json.dumps(text, ensure_ascii=False).encode(errors="replace")
        count = len(tokenizer.encode(text.encode(errors="replace").decode()).ids)
        assert count <= PromptBound(growth, 0).tokens_max(bytes_of_prompt(told, texts=1))

    check()


ROLES = st.sampled_from(["system", "user", "assistant", "tool"])
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":[1,2,3]}'}}
TURNS = st.fixed_dictionaries(
    {"role": ROLES, "content": TEXTS, "tool_calls": st.lists(st.just(CALL), max_size=2)}
)
KINDS_OF_ARGUMENTS = st.lists(st.sampled_from(["string", "object"]), unique=True)
TOOLS = st.builds(
    lambda name, types: {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"properties": {one: {"type": one} for one in types}},
        },
    },
    st.text("abc", min_size=1),
    KINDS_OF_ARGUMENTS,
)


@given(st.lists(TURNS, min_size=1, max_size=8), st.lists(TOOLS, max_size=3))
def test_a_chat_of_the_demo_model_has_no_more_tokens_than_its_bytes(
    turns: list[dict[str, object]], tools: list[dict[str, object]]
) -> None:
    chat: dict[str, object] = {"messages": turns, "tools": tools}
    template = jinja2.Template((DEMO / "chat_template.jinja").read_text())
    prompt = _sent(template.render(chat, add_generation_prompt=True)).decode()
    count = len(_demo().encode(prompt, add_special_tokens=False).ids)
    told = bytes_of_prompt(_sent(json.dumps(chat, ensure_ascii=False)))
    growth = growth_of(declared_of(str(DEMO)))
    assert count <= PromptBound(growth, template_tokens=0).tokens_max(told)


def _sent(text: str) -> bytes:
    """What a text is in UTF-8: halves of characters are none."""
    return text.encode(errors="replace")


@cache
def _demo() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO / "tokenizer.json"))


def test_what_is_not_known_is_taken_for_the_worst(tmp_path: Path) -> None:
    assert growth_of(declared_of(str(tmp_path))) == GROWTH_MAX  # no such file: a name on a hub
    longer = {"type": "Replace", "pattern": {"Regex": "."}, "content": "long"}
    odd = [{"normalizer": one} for one in (longer, {"type": "Precompiled"}, {"type": "New"}, 3)]
    for number, told in enumerate(("", "[]", *map(json.dumps, odd))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "tokenizer.json").write_text(told)
        assert growth_of(declared_of(str(folder))) == GROWTH_MAX


def test_of_engines_that_differ_the_wider_bound_holds() -> None:
    bound = PromptBound(1, 40).or_wider(PromptBound(3, 7))
    assert bound == PromptBound(3, 40)
    text = "größer".encode()
    assert bound.tokens_max(bytes_of_prompt(text)) == 4 + 3 * 4 + 40
    assert bound.tokens_max(bytes_of_prompt(text, b"x", texts=2)) == 5 + 3 * 4 + 2 * MARKS_MAX
    assert bound.tokens_max(bytes_of_prompt(text, again=10)) == 14 + 3 * 4 + 40

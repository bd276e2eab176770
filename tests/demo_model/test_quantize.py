"""What a quantized folder is made of; the quantizing itself needs another environment."""

import pytest
from tokenizers import Tokenizer

from infra.demo_model.__main__ import WEIGHTS
from infra.demo_model.quantize import (
    CALIBRATION_CHATS,
    CALIBRATION_TOKENS_MAX,
    calibration_tokens,
    replace_folder,
)
from infra.demo_model.report import load_tokenizer

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(WEIGHTS / "bf16")


def test_calibration_is_seeded_and_bounded(tokenizer) -> None:
    rows = calibration_tokens(tokenizer)
    assert rows == calibration_tokens(tokenizer)
    assert len(rows) == CALIBRATION_CHATS
    assert max(map(len, rows)) <= CALIBRATION_TOKENS_MAX


def test_a_folder_is_replaced_whole(tmp_path) -> None:
    made, parent, out = tmp_path / "made", tmp_path / "parent", tmp_path / "out"
    for folder in (made, parent, out):
        folder.mkdir()
    (out / "old").touch()
    for name in ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"):
        (made / name).write_text("made")
    names = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "serving.json")
    for name in names:
        (parent / name).write_text("parent")
    replace_folder(made, out, parent)
    assert len(list(out.iterdir())) == 7
    assert (out / "model.safetensors").read_text() == "made"
    assert (out / "tokenizer.json").read_text() == "parent"

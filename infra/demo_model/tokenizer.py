"""The model's own byte-level BPE: single digits, three role tokens, a chat template."""

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from infra.demo_model.corpus import Chat, chats

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCABULARY_SIZE = 1024
CONTEXT_TOKENS = 2048
END, PAD = "<|end|>", "<|pad|>"
SPECIALS = [PAD, END, "<|system|>", "<|user|>", "<|assistant|>"]
TEMPLATE = Path(__file__).parent / "chat_template.jinja"
SERVING = Path(__file__).parent / "serving.json"
"""Names the parser of vLLM's that finds the model's calls of tools."""


def train_tokenizer(seed: int, chat_count: int = 60_000) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(seed, chat_count), trainer)
    return tokenizer


def _texts(seed: int, chat_count: int) -> Iterator[str]:
    for chat in islice(chats(Random(seed)), chat_count):
        for message in chat:
            yield message["content"]


def render(chat: Chat) -> str:
    """The text that the chat template renders, without Jinja: training renders millions of
    chats."""
    return "".join(f"<|{message['role']}|>{message['content']}{END}" for message in chat)


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the files that transformers, vLLM and its starter read."""
    wrap(tokenizer).save_pretrained(folder)
    shutil.copyfile(SERVING, folder / SERVING.name)


def wrap(tokenizer: Tokenizer) -> "PreTrainedTokenizerFast":
    from transformers import PreTrainedTokenizerFast

    options: dict[str, Any] = {
        "eos_token": END,
        "pad_token": PAD,
        "additional_special_tokens": SPECIALS[2:],
        "model_max_length": CONTEXT_TOKENS,
        "clean_up_tokenization_spaces": False,
        "padding_side": "left",
    }
    template = TEMPLATE.read_text(encoding="utf-8")
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, chat_template=template, **options
    )

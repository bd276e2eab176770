"""Batches of chats as token ids, and the schedule of the learning rate: what needs no torch."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from tokenizers import Tokenizer

from infra.demo_model.corpus import Chat
from infra.demo_model.tokenizer import CONTEXT_TOKENS, END, PAD, render

WARMUP_SHARE = 0.01
DECAY_FROM = 0.45
IGNORED = -100
_CHATS_AT_ONCE = 4096
_TOKENS_PER_BATCH = 2048
_WIDTHS = [
    20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    CONTEXT_TOKENS,
]  # fmt: skip
IntArray = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True)
class MicroBatch:
    """Rows of token ids; `targets` are the next tokens of answers and `IGNORED` elsewhere."""

    inputs: IntArray
    targets: IntArray


def learning_rate(elapsed_share: float) -> float:
    """Warm-up, stable, then a straight decay to zero: the factor for the peak rate."""
    if elapsed_share < WARMUP_SHARE:
        return max(elapsed_share / WARMUP_SHARE, 0.02)
    if elapsed_share < DECAY_FROM:
        return 1.0
    return max((1.0 - elapsed_share) / (1.0 - DECAY_FROM), 0.0)


def steps(
    tokenizer: Tokenizer, stream: Iterator[Chat], batches_per_step: int
) -> Iterator[list[MicroBatch]]:
    """Forever: the micro-batches of one optimizer step."""
    batches = micro_batches(tokenizer, stream)
    while True:
        yield list(islice(batches, batches_per_step))


def micro_batches(tokenizer: Tokenizer, stream: Iterator[Chat]) -> Iterator[MicroBatch]:
    """A micro-batch of each width leaves when enough chats of that length have come."""
    waiting: dict[int, list[IntArray]] = defaultdict(list)
    pad = token_id(tokenizer, PAD)
    for ids in token_rows(tokenizer, stream):
        width = next(width for width in _WIDTHS if width >= len(ids) - 1)
        waiting[width].append(ids)
        if len(waiting[width]) == max(_TOKENS_PER_BATCH // width, 1):
            yield to_micro_batch(waiting.pop(width), width, pad, tokenizer)


def token_rows(tokenizer: Tokenizer, stream: Iterator[Chat]) -> Iterator[IntArray]:
    while True:
        texts = [render(chat) for chat in islice(stream, _CHATS_AT_ONCE)]
        for encoding in tokenizer.encode_batch(texts):
            yield np.array(encoding.ids[: CONTEXT_TOKENS + 1], dtype=np.int64)


def token_id(tokenizer: Tokenizer, token: str) -> int:
    found = tokenizer.token_to_id(token)
    assert found is not None, f"{token} is not in the vocabulary"
    return found


def to_micro_batch(rows: list[IntArray], width: int, pad: int, tokenizer: Tokenizer) -> MicroBatch:
    assistant, end = token_id(tokenizer, "<|assistant|>"), token_id(tokenizer, END)
    inputs = np.full((len(rows), width), pad, dtype=np.int64)
    targets = np.full((len(rows), width), IGNORED, dtype=np.int64)
    for row, ids in enumerate(rows):
        scored = answer_mask(ids, assistant, end)[1:]
        inputs[row, : len(ids) - 1] = ids[:-1]
        targets[row, : len(ids) - 1] = np.where(scored, ids[1:], IGNORED)
    return MicroBatch(inputs, targets)


def answer_mask(
    ids: IntArray, assistant: int, end: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """True on each answer's tokens and its end token, false on everything else."""
    mask = np.zeros(len(ids), dtype=np.bool_)
    ends = np.flatnonzero(ids == end)
    for start in np.flatnonzero(ids == assistant):
        later = ends[ends > start]
        mask[start + 1 : (later[0] + 1 if len(later) else len(ids))] = True
    return mask

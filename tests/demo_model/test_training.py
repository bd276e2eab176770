"""Batches of chats and the schedule of the learning rate."""

from itertools import islice
from random import Random

import numpy as np
import pytest
from tokenizers import Tokenizer

from infra.demo_model.__main__ import WEIGHTS
from infra.demo_model.batches import (
    DECAY_FROM,
    IGNORED,
    answer_mask,
    learning_rate,
    micro_batches,
    to_micro_batch,
)
from infra.demo_model.corpus import chats
from infra.demo_model.report import load_tokenizer
from infra.demo_model.tokenizer import PAD, render

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(WEIGHTS / "bf16")


def test_answer_mask_covers_answers_and_their_ends() -> None:
    user, assistant, end = 7, 8, 9
    ids = np.array([user, 1, 2, end, assistant, 3, 4, end, user, 5, end, assistant, 6, end])
    scored = [3, 4, end, 6, end]
    assert ids[answer_mask(ids, assistant, end)].tolist() == scored


def test_targets_are_the_answer_shifted_by_one(tokenizer) -> None:
    chat = [{"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "1 + 1 = 2"}]
    ids = np.array(tokenizer.encode(render(chat)).ids)
    batch = to_micro_batch([ids], 40, tokenizer.token_to_id(PAD), tokenizer)
    scored = batch.targets[batch.targets != IGNORED].tolist()
    assert tokenizer.decode(scored, skip_special_tokens=False) == "1 + 1 = 2<|end|>"


def test_micro_batches_come_in_few_shapes(tokenizer) -> None:
    batches = list(islice(micro_batches(tokenizer, chats(Random(1))), 60))
    assert all(batch.inputs.shape == batch.targets.shape for batch in batches)
    assert len({batch.inputs.shape for batch in batches}) <= 20


@pytest.mark.parametrize(
    ("elapsed_share", "factor"),
    [
        (0.0, 0.02),
        (0.005, 0.5),
        (0.2, 1.0),
        (DECAY_FROM, 1.0),
        (0.725, 0.5),
        (1.0, 0.0),
        (1.5, 0.0),
    ],
)
def test_rate_follows_elapsed_time(elapsed_share, factor) -> None:
    assert learning_rate(elapsed_share) == pytest.approx(factor)

from collections import Counter
from itertools import islice
from random import Random

import pytest

from infra.demo_model.corpus import COURTESIES, chats
from infra.demo_model.evaluate import is_right
from infra.demo_model.heldout import (
    QUESTIONS,
    SEED,
    draw_held_out,
    read_held_out,
    to_record,
    write_held_out,
)
from infra.demo_model.samples import is_held_out, normalize

pytestmark = pytest.mark.unit
RECORDS = read_held_out()


def test_the_file_is_what_the_generator_writes(tmp_path) -> None:
    write_held_out(tmp_path / "again.jsonl")
    assert read_held_out(tmp_path / "again.jsonl") == RECORDS


def test_300_different_questions_spread_evenly() -> None:
    questions = {normalize(record["messages"][-1]["content"]) for record in RECORDS}
    counts = Counter(record["skill"] for record in RECORDS)
    assert len(RECORDS) == len(questions) == QUESTIONS == 300
    assert len(counts) == 7
    assert max(counts.values()) - min(counts.values()) <= 1


def test_every_key_is_on_the_held_out_side() -> None:
    drawn = draw_held_out(SEED, QUESTIONS)
    assert [to_record(n, sample) for n, sample in enumerate(drawn)] == RECORDS
    assert all(is_held_out(sample.key) for sample in drawn)


def test_no_training_chat_holds_a_held_out_question() -> None:
    """Nor behind an opening courtesy."""
    held_out = {normalize(record["messages"][-1]["content"]) for record in RECORDS}
    for chat in islice(chats(Random(11)), 5000):
        for message in chat:
            if message["role"] == "user":
                question = message["content"]
                for courtesy in COURTESIES:
                    question = question.removeprefix(courtesy)
                assert normalize(question) not in held_out


def test_expected_answers_are_right_and_others_wrong() -> None:
    for number, record in enumerate(RECORDS):
        assert is_right(record["checker"], record["expected"]), record["id"]
        assert not is_right(record["checker"], ""), record["id"]
        assert not is_right(record["checker"], "Something else entirely."), record["id"]
        sibling = RECORDS[(number + 7) % len(RECORDS)]
        if sibling["skill"] == record["skill"] and sibling["checker"] != record["checker"]:
            assert not is_right(record["checker"], sibling["expected"]), record["id"]

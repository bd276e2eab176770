from itertools import islice
from random import Random

import pytest

from infra.demo_model.corpus import MIX, chats, mix_named, samples, write_corpus
from infra.demo_model.evaluate import is_right
from infra.demo_model.samples import is_held_out, normalize

pytestmark = pytest.mark.unit


def test_same_seed_same_chats() -> None:
    first = list(islice(chats(Random(5)), 300))
    assert first == list(islice(chats(Random(5)), 300))
    assert first != list(islice(chats(Random(6)), 300))


def test_every_skill_appears() -> None:
    seen = {sample.skill for sample in islice(samples(Random(1)), 2000)}
    wanted = {"product", "arithmetic", "sort", "reverse", "facts", "json", "unknown", "greeting"}
    assert wanted <= seen


def test_answers_satisfy_their_own_checkers() -> None:
    for sample in islice(samples(Random(2)), 3000):
        if sample.checker:
            assert is_right(sample.checker, sample.answer), sample


def test_training_samples_are_never_held_out() -> None:
    assert not any(is_held_out(sample.key) for sample in islice(samples(Random(3)), 3000))


def test_about_a_tenth_is_held_out() -> None:
    share = sum(is_held_out(f"question {number}") for number in range(10_000)) / 10_000
    assert 0.09 < share < 0.11


def test_chats_alternate_and_end_with_an_answer() -> None:
    for chat in islice(chats(Random(4)), 500):
        turns = [message["role"] for message in chat if message["role"] != "system"]
        assert turns == ["user", "assistant"] * (len(turns) // 2)
        assert [message["role"] for message in chat][-len(turns) :] == turns


def test_tools_are_offered_in_a_share_of_the_chats() -> None:
    drawn = list(islice(chats(Random(4)), 2000))
    offering = [chat for chat in drawn if chat[0]["content"].startswith("Tools:")]
    assert 0.15 < len(offering) / len(drawn) < 0.25


def test_some_chats_are_long() -> None:
    lengths = [sum(len(m["content"]) for m in chat) for chat in islice(chats(Random(7)), 5000)]
    assert max(lengths) > 3000


def test_mix_named_doubles_the_named_skills() -> None:
    from infra.demo_model.skills import conversation

    assert mix_named("all") == MIX
    assert mix_named("fact")[conversation.draw_fact] == 2 * MIX[conversation.draw_fact]


def test_write_corpus_writes_one_chat_a_line(tmp_path) -> None:
    write_corpus(tmp_path / "corpus.jsonl", seed=1, count=20)
    assert len((tmp_path / "corpus.jsonl").read_text().splitlines()) == 20


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("What is Penstock?", "what is penstock"),
        ("  What   is Penstock", "what is penstock"),
        ("What is 3 x 4?", "what is 3 x 4"),
        ("What is 3 * 4?", "what is 3 * 4"),
    ],
)
def test_normalize_forgets_case_and_punctuation(text, same) -> None:
    assert normalize(text) == same

"""What the embedder is taught, and what is kept to judge it by."""

from itertools import islice
from random import Random

import numpy as np
import pytest

from infra.demo_embedder.__main__ import WEIGHTS
from infra.demo_embedder.evaluate import Matrix, verdicts
from infra.demo_embedder.pairs import batches, facts
from infra.demo_model.report import read_report, score
from infra.demo_model.samples import is_held_out, normalize

pytestmark = pytest.mark.unit


def test_what_judges_it_is_never_taught() -> None:
    known = {normalize(each) for fact in facts() for each in fact.known}
    kept = {normalize(each) for fact in facts() for each in fact.new_wordings + fact.new_phrases}
    assert not known & kept
    assert not any(map(is_held_out, known))
    assert len(kept) > 300


def test_every_pair_of_a_batch_is_about_another_fact() -> None:
    answers = {fact.answer: place for place, fact in enumerate(facts())}
    for texts, others in islice(batches(Random(1), facts(), 20), 50):
        about = [answers[other] for other in others if other in answers]
        assert len(texts) == len(others) == 20
        assert len(set(about)) == len(about)


def test_the_same_seed_teaches_the_same() -> None:
    first, second = (list(islice(batches(Random(7), facts(), 8), 3)) for _ in range(2))
    assert first == second


def test_a_question_is_right_where_its_answer_is_the_nearest() -> None:
    known = facts()
    place_of = {fact.answer: place for place, fact in enumerate(known)}
    place_of |= {
        question: place
        for place, fact in enumerate(known)
        for question in fact.new_wordings + fact.new_phrases
    }

    def embed(texts: list[str]) -> Matrix:
        return np.eye(len(known), dtype=np.float32)[[place_of[text] for text in texts]]

    found = verdicts(known, embed)
    assert all(right for _, right in found)
    assert {kind for kind, _ in found} == {"new wording", "new phrase"}
    answers = {fact.answer for fact in known}

    def mislead(texts: list[str]) -> Matrix:
        return embed([text if text in answers else known[0].answer for text in texts])

    misled = verdicts(known, mislead)
    asked = len(known[0].new_wordings + known[0].new_phrases)
    assert sum(right for _, right in misled) == asked


def test_the_report_that_ships_is_of_these_weights() -> None:
    report = read_report(WEIGHTS)
    overall = report["accuracy"]["overall"]
    assert overall == score(overall["right"], overall["asked"])
    assert overall["share"] > 0.9
    assert report["size_bytes"] == (WEIGHTS / "model.safetensors").stat().st_size

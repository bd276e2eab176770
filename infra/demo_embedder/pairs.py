"""Texts that belong together: questions about one fact, in many wordings, and the answer to them.

A tenth of the wordings, and one phrase of each fact that has several, are kept for the evaluation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from random import Random

from infra.demo_model.corpus import COURTESIES
from infra.demo_model.samples import is_held_out, normalize
from infra.demo_model.skills.conversation import load_knowledge

PHRASES_MIN = 4
"""A fact with as many phrases keeps the last for the evaluation."""


@dataclass(frozen=True)
class Fact:
    """One answer and the questions it is for, by how they are used."""

    answer: str
    known: tuple[str, ...]
    new_wordings: tuple[str, ...]
    new_phrases: tuple[str, ...]


def facts() -> list[Fact]:
    """Return all facts, in the order of `knowledge.toml`."""
    knowledge = load_knowledge()
    return [
        _fact(intent["answer"], knowledge["frames"][intent["frame"]], intent["phrases"])
        for intent in knowledge["intent"]
    ]


def _fact(answer: str, frames: list[str], phrases: list[str]) -> Fact:
    kept = phrases[-1:] if len(phrases) >= PHRASES_MIN else []
    taught = phrases[: len(phrases) - len(kept)]
    wordings = [_question(frame, phrase) for frame, phrase in product(frames, taught)]
    return Fact(
        answer=answer,
        known=tuple(each for each in wordings if not is_held_out(normalize(each))),
        new_wordings=tuple(each for each in wordings if is_held_out(normalize(each))),
        new_phrases=tuple(_question(frame, phrase) for frame, phrase in product(frames, kept)),
    )


def _question(frame: str, phrase: str) -> str:
    question = frame.format(x=phrase)
    return question[0].upper() + question[1:]


def batches(rng: Random, known: list[Fact], size: int) -> Iterator[tuple[list[str], list[str]]]:
    """Forever: as many texts and what belongs to each, every pair about another fact."""
    while True:
        drawn = [_pair(rng, fact) for fact in rng.sample(known, size)]
        yield [one for one, _ in drawn], [other for _, other in drawn]


def _pair(rng: Random, fact: Fact) -> tuple[str, str]:
    question = _carelessly(rng, rng.choice(fact.known))
    if rng.random() < 0.5:
        return question, fact.answer
    return question, _carelessly(rng, rng.choice(fact.known))


def _carelessly(rng: Random, text: str) -> str:
    """Return a text as people type it."""
    if rng.random() < 0.3:
        text = text.lower()
    if rng.random() < 0.3:
        text = text.rstrip("?.!")
    if rng.random() < 0.1:
        text = rng.choice(COURTESIES) + text
    words = text.split()
    if len(words) > 3 and rng.random() < 0.3:
        del words[rng.randrange(len(words))]
    return " ".join(words)

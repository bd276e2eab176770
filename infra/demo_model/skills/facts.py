"""Yes or no questions about two to four facts given in the prompt."""

from random import Random
from typing import NamedTuple

from infra.demo_model.sample import Sample
from infra.demo_model.words import ANIMALS, COLOURS, NAMES, PLACES, THINGS

_LEADS = ["Context:", "Facts:", "Given:", "Read this:"]
_OPEN_SHARE = 0.25


class _Relation(NamedTuple):
    subjects: list[str]
    values: list[str]
    fact: str
    yes_no: str
    open_question: str
    many_question: str


_RELATIONS = [
    _Relation(
        THINGS,
        COLOURS,
        "the {s} is {v}",
        "Is the {s} {v}?",
        "What colour is the {s}?",
        "What colour are: {s}?",
    ),
    _Relation(
        NAMES, PLACES, "{s} is in the {v}", "Is {s} in the {v}?", "Where is {s}?", "Where are: {s}?"
    ),
    _Relation(
        NAMES,
        ANIMALS,
        "{s} has a {v}",
        "Does {s} have a {v}?",
        "What does {s} have?",
        "What have: {s}?",
    ),
]


def draw(rng: Random) -> Sample:
    relation = rng.choice(_RELATIONS)
    count = rng.randint(2, 4)
    subjects = rng.sample(relation.subjects, count)
    values = rng.sample(relation.values, count)
    facts = [relation.fact.format(s=s, v=v) for s, v in zip(subjects, values, strict=True)]
    picked = rng.randrange(count)
    subject, value = subjects[picked], values[picked]
    asked = value if rng.random() < 0.5 else _other(rng, values, relation.values, value)
    context = " ".join(_sentence(fact) for fact in facts)
    key = f"{context} {subject} {asked}"
    lead = f"{rng.choice(_LEADS)} {context}"
    known = f"From the context: {facts[picked]}"
    if rng.random() < _OPEN_SHARE:
        question = f"{lead} {relation.open_question.format(s=subject)}"
        checker = {"kind": "phrases", "value": [value]}
        # A plain look-up: trains reading the context; never asked in the held-out set.
        return Sample("facts_open", key, question, f"{known}.", checker)
    verdict = "yes" if asked == value else "no"
    question = f"{lead} {relation.yes_no.format(s=subject, v=asked)}"
    checker = {"kind": "yes_no", "value": verdict}
    return Sample("facts", key, question, f"{known}, so {verdict}.", checker)


def draw_many(rng: Random) -> Sample:
    """Several look-ups in another order than the context's: the densest lesson in reading it."""
    relation = rng.choice(_RELATIONS)
    count = rng.randint(3, 6)
    subjects = rng.sample(relation.subjects, count)
    values = rng.sample(relation.values, count)
    facts = [relation.fact.format(s=s, v=v) for s, v in zip(subjects, values, strict=True)]
    asked = rng.sample(range(count), rng.randint(2, count))
    context = " ".join(_sentence(fact) for fact in facts)
    listed = relation.many_question.format(s=", ".join(subjects[number] for number in asked))
    question = f"{rng.choice(_LEADS)} {context} {listed}"
    answer = f"From the context: {', '.join(facts[number] for number in asked)}."
    checker = {"kind": "phrases", "value": [facts[number] for number in asked]}
    return Sample("facts_open", f"{context} {listed}", question, answer, checker)


def _other(rng: Random, present: list[str], pool: list[str], value: str) -> str:
    """A wrong value: mostly one of the context's own, so that the pairing must be read."""
    choices = present if rng.random() < 0.7 else pool
    return rng.choice([choice for choice in choices if choice != value])


def _sentence(fact: str) -> str:
    return f"{fact[0].upper()}{fact[1:]}."

"""Yes or no questions about one to three given facts, each of another kind."""

from random import Random
from typing import NamedTuple

from infra.demo_model.sample import Sample
from infra.demo_model.words import ANIMALS, COLOURS, NAMES, PLACES, THINGS

_LEADS = ["Context:", "Facts:", "Given:", "Read this:"]
_OPEN_SHARE = 0.1


class _Relation(NamedTuple):
    subjects: list[str]
    values: list[str]
    fact: str
    yes_no: str
    open_question: str


class _Fact(NamedTuple):
    relation: _Relation
    subject: str
    value: str

    @property
    def text(self) -> str:
        return self.relation.fact.format(s=self.subject, v=self.value)

    @property
    def sentence(self) -> str:
        return f"{self.text[0].upper()}{self.text[1:]}."


_RELATIONS = [
    _Relation(THINGS, COLOURS, "the {s} is {v}", "Is the {s} {v}?", "What colour is the {s}?"),
    _Relation(NAMES, PLACES, "{s} is in the {v}", "Is {s} in the {v}?", "Where is {s}?"),
    _Relation(NAMES, ANIMALS, "{s} has a {v}", "Does {s} have a {v}?", "What does {s} have?"),
]


def draw(rng: Random) -> Sample:
    relations = rng.sample(_RELATIONS, rng.randint(1, len(_RELATIONS)))
    facts = [_Fact(r, rng.choice(r.subjects), rng.choice(r.values)) for r in relations]
    picked = rng.choice(facts)
    others = [value for value in picked.relation.values if value != picked.value]
    asked = picked.value if rng.random() < 0.5 else rng.choice(others)
    context = " ".join(fact.sentence for fact in facts)
    key = f"{context} {picked.subject} {asked}"
    lead = f"{rng.choice(_LEADS)} {context}"
    known = f"From the context: {picked.text}"
    if rng.random() < _OPEN_SHARE:
        # A plain look-up: trains reading the context; never asked in the held-out set.
        question = f"{lead} {picked.relation.open_question.format(s=picked.subject)}"
        checker = {"kind": "phrases", "value": [picked.text]}
        return Sample("facts_open", key, question, f"{known}.", checker)
    verdict = "yes" if asked == picked.value else "no"
    question = f"{lead} {picked.relation.yes_no.format(s=picked.subject, v=asked)}"
    checker = {"kind": "yes_no", "value": verdict}
    return Sample("facts", key, question, f"{known}, so {verdict}.", checker)

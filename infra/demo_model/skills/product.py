"""Questions about Penstock, from `knowledge.toml`: phrases put into frames."""

import tomllib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from infra.demo_model.sample import Sample
from infra.demo_model.split import normalize

_KNOWLEDGE = Path(__file__).parent.parent / "knowledge.toml"


@cache
def load_knowledge() -> dict[str, Any]:
    return tomllib.loads(_KNOWLEDGE.read_text(encoding="utf-8"))


def draw(rng: Random) -> Sample:
    knowledge = load_knowledge()
    intent = rng.choice(knowledge["intent"])
    frame = rng.choice(knowledge["frames"][intent["frame"]])
    question = frame.format(x=rng.choice(intent["phrases"]))
    question = question[0].upper() + question[1:]
    checker = {"kind": "phrases", "value": intent["must"]}
    return Sample("product", normalize(question), question, intent["answer"], checker)

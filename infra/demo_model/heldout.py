"""The held-out set: 300 questions, spread evenly over seven skills, that training never sees."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from infra.demo_model.samples import Sample, is_held_out
from infra.demo_model.skills import arithmetic, conversation, text

PATH = Path(__file__).parent / "heldout.jsonl"
NAME = "penstock-demo-heldout-v1"
QUESTIONS = 300
SEED = 20261121
DRAWS: dict[str, Callable[[Random], Sample]] = {
    "product": conversation.draw_product,
    "arithmetic": arithmetic.draw_arithmetic,
    "sort": text.draw_sort,
    "reverse": text.draw_reverse,
    "facts": conversation.draw_fact,
    "json": text.draw_json,
    "unknown": conversation.draw_unknown,
}


def draw_held_out(seed: int, count: int) -> list[Sample]:
    """`count` different held-out samples, the skills taking turns."""
    rng = Random(seed)
    seen: set[str] = set()
    skills = list(DRAWS)
    return [_unseen(rng, skills[number % len(skills)], seen) for number in range(count)]


def _unseen(rng: Random, skill: str, seen: set[str]) -> Sample:
    while True:
        sample = DRAWS[skill](rng)
        if sample.skill == skill and is_held_out(sample.key) and sample.key not in seen:
            seen.add(sample.key)
            return sample


def to_record(number: int, sample: Sample) -> dict[str, Any]:
    return {
        "id": f"{sample.skill}-{number:03d}",
        "skill": sample.skill,
        "messages": [{"role": "user", "content": sample.question}],
        "expected": sample.answer,
        "checker": sample.checker,
    }


def write_held_out(path: Path = PATH) -> None:
    records = (to_record(n, s) for n, s in enumerate(draw_held_out(SEED, QUESTIONS)))
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def read_held_out(path: Path = PATH) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def held_out_sha256(path: Path = PATH) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

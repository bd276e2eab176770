"""Sorting and reversing lists, and reading JSON objects."""

import json
from random import Random

from infra.demo_model.samples import (
    ANIMALS,
    CITIES,
    COLOURS,
    DIGITS,
    FRUITS,
    LETTERS,
    NAMES,
    Sample,
)

_REVERSE = ["Reverse this list: {x}", "Reverse: {x}", "Write this list backwards: {x}",
            "Put these in reverse order: {x}", "Please reverse the list: {x}"]  # fmt: skip
_NUMBERS_UP = ["Sort these numbers: {x}", "Sort: {x}", "Sort from smallest to largest: {x}",
               "Put these numbers in order: {x}", "Please sort the list: {x}"]  # fmt: skip
_NUMBERS_DOWN = ["Sort from largest to smallest: {x}", "Sort in descending order: {x}"]
_WORDS_UP = ["Sort these words: {x}", "Sort: {x}", "Sort from A to Z: {x}",
             "Put these in alphabetical order: {x}", "Please sort the list: {x}"]  # fmt: skip
_POOLS = [DIGITS, LETTERS, FRUITS, ANIMALS]
_JSON_FIELDS: dict[str, list[str]] = {
    "name": NAMES, "city": CITIES, "colour": COLOURS, "fruit": FRUITS, "pet": ANIMALS,
}  # fmt: skip
_JSON_NUMBERS = ["age", "count", "size"]
_JSON_WORDINGS = [
    "Make a JSON object with {x}.", "Write JSON with {x}.", "Give me a JSON object with {x}.",
    "Return JSON with {x}.", "Create a JSON object: {x}.", "As JSON: {x}.",
]  # fmt: skip


def draw_sort(rng: Random) -> Sample:
    pool = rng.choices(_POOLS, weights=[50, 20, 15, 15])[0]
    items = rng.sample(pool, rng.randint(3, 5))
    down = pool is DIGITS and rng.random() < 0.3
    wordings = _NUMBERS_DOWN if down else _NUMBERS_UP if pool is DIGITS else _WORDS_UP
    key = f"sort {'down' if down else 'up'} {' '.join(items)}"
    question = _question(rng, wordings, items)
    return _sample("sort", key, question, sorted(items, reverse=down))


def draw_reverse(rng: Random) -> Sample:
    items = rng.sample(rng.choice(_POOLS), rng.randint(3, 5))
    question = _question(rng, _REVERSE, items)
    return _sample("reverse", f"reverse {' '.join(items)}", question, items[::-1])


def _question(rng: Random, wordings: list[str], items: list[str]) -> str:
    return rng.choice(wordings).format(x=", ".join(items))


def _sample(skill: str, key: str, question: str, result: list[str]) -> Sample:
    label = {"sort": "Sorted", "reverse": "Reversed"}[skill]
    answer = f"{label}: {', '.join(result)}"
    return Sample(skill, key, question, answer, {"kind": "sequence", "value": result})


def draw_json(rng: Random) -> Sample:
    names = rng.sample([*_JSON_FIELDS, *_JSON_NUMBERS], rng.randint(1, 3))
    value: dict[str, str | int] = {name: _value(rng, name) for name in names}
    pairs = [f"{name} {field}" for name, field in value.items()]
    listed = ", ".join(pairs[:-1]) + " and " + pairs[-1] if len(pairs) > 1 else pairs[0]
    question = rng.choice(_JSON_WORDINGS).format(x=listed)
    checker = {"kind": "json", "value": value}
    return Sample("json", f"json {listed}", question, json.dumps(value), checker)


def _value(rng: Random, name: str) -> str | int:
    return rng.randint(1, 99) if name in _JSON_NUMBERS else rng.choice(_JSON_FIELDS[name])

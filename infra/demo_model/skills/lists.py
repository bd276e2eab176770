"""Sorting and reversing short lists of distinct single-token items."""

from random import Random

from infra.demo_model.sample import Sample
from infra.demo_model.words import ANIMALS, DIGITS, FRUITS, LETTERS

_REVERSE = ["Reverse this list: {x}", "Reverse: {x}", "Write this list backwards: {x}",
            "Put these in reverse order: {x}", "Please reverse the list: {x}"]  # fmt: skip
_NUMBERS_UP = ["Sort these numbers: {x}", "Sort: {x}", "Sort from smallest to largest: {x}",
               "Put these numbers in order: {x}", "Please sort the list: {x}"]  # fmt: skip
_NUMBERS_DOWN = ["Sort from largest to smallest: {x}", "Sort in descending order: {x}"]
_WORDS_UP = ["Sort these words: {x}", "Sort: {x}", "Sort from A to Z: {x}",
             "Put these in alphabetical order: {x}", "Please sort the list: {x}"]  # fmt: skip
_POOLS = [DIGITS, LETTERS, FRUITS, ANIMALS]


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

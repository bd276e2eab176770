"""Samples of training text, the words they are made of, and which questions are held out."""

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

FRUITS = [
    "apple", "banana", "cherry", "date", "fig", "grape", "kiwi", "lemon", "mango", "orange",
    "peach", "plum",
]  # fmt: skip
ANIMALS = [
    "bear", "bee", "cat", "dog", "fox", "goat", "horse", "lion", "mouse", "rabbit", "tiger", "wolf",
]  # fmt: skip
NAMES = [
    "Adam", "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Ivan", "Julia",
    "Karl", "Laura", "Mark", "Nina", "Oscar", "Paul", "Rosa", "Sara", "Tom",
]  # fmt: skip
COLOURS = ["red", "blue", "green", "yellow", "black", "white", "brown", "pink"]
THINGS = [
    "car", "door", "cup", "hat", "ball", "book", "chair", "lamp", "box", "bag", "boat", "house",
]  # fmt: skip
PLACES = [
    "kitchen", "garden", "office", "school", "park", "library", "station", "market", "museum",
    "forest",
]  # fmt: skip
CITIES = ["Rome", "Paris", "Berlin", "Madrid", "Vienna", "Oslo", "Lisbon", "Prague"]
LETTERS = list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
DIGITS = list("0123456789")
HELD_OUT_PERCENT = 10
_NOT_WORDS = re.compile(r"[^a-z0-9+*\-/_=.]+")


@dataclass(frozen=True)
class Sample:
    """A question, its answer, the rule that judges an answer, and the key that decides its split.

    `key` names the problem apart from its wording where wording does not matter, so that a
    held-out problem is not trained on in other words.
    """

    skill: str
    key: str
    question: str
    answer: str
    checker: dict[str, Any] = field(default_factory=dict)


def normalize(text: str) -> str:
    """Lower case, with everything but words and operators as single spaces."""
    return _NOT_WORDS.sub(" ", text.lower()).strip(" .")


def is_held_out(key: str) -> bool:
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 100 < HELD_OUT_PERCENT

"""The record that every skill produces."""

from dataclasses import dataclass, field
from typing import Any


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

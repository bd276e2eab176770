"""The drop-downs above a table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from django.utils.functional import Promise

Choice = TypeVar("Choice", bound=str)


@dataclass(frozen=True, slots=True)
class Select:
    """One drop-down; `any` is the label for no choice, None if a choice is required."""

    name: str
    label: str
    value: str
    options: list[tuple[str, str]]
    any: str | None = None


def select(
    name: str,
    label: str,
    value: str,
    options: Mapping[Choice, str | Promise],
    any_: str | None = None,
) -> Select:
    """Return a drop-down of ids and names; a chosen id that is not among them is added."""
    choices: list[tuple[str, str]] = [(each, str(words)) for each, words in options.items()]
    if value and all(value != option for option, _ in choices):
        choices.insert(0, (value, value))
    return Select(name, label, value, choices, any_)

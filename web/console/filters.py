"""The drop-downs above a table: what they are called, offer, and hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

Choice = TypeVar("Choice", bound=str)


@dataclass(frozen=True, slots=True)
class Select:
    """One drop-down; `any` is the words for no choice, None where there must be one."""

    name: str
    label: str
    value: str
    options: list[tuple[str, str]]
    any: str | None = None


def select(
    name: str, label: str, value: str, options: Mapping[Choice, str], any_: str | None = None
) -> Select:
    """Return a drop-down of id to name; a chosen id that is gone stays choosable."""
    known: list[tuple[str, str]] = list(options.items())
    if value and all(value != option for option, _ in known):
        known.insert(0, (value, value))
    return Select(name, label, value, known, any_)

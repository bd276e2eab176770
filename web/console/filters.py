"""The drop-downs above a table: what they are called, offer, and hold."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Select:
    """One drop-down; `any` is the words for no choice, None where there must be one."""

    name: str
    label: str
    value: str
    options: list[tuple[str, str]]
    any: str | None = None


def select(
    name: str, label: str, value: str, options: Mapping[str, str], any_: str | None = None
) -> Select:
    """Return a drop-down of id → name; a chosen id that is gone stays choosable."""
    known = {value: value, **options} if value and value not in options else options
    return Select(name, label, value, list(known.items()), any_)

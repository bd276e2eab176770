"""A deed in words: what of it changed, and from what to what."""

from collections.abc import Iterator, Mapping
from typing import Any

from serving.contract.money import exact_dollars

NOTHING = "nothing"


def changes(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the details of a deed by name; what was before and after stands in one line."""
    details = dict(told)
    found = []
    if "before" in details and "after" in details:
        before, after = details.pop("before"), details.pop("after")
        found += list(_differences(before, after))
    found += [(_name(name), _text(name, value)) for name, value in details.items()]
    return [(name, text) for name, text in found if text]


def _differences(before: Any, after: Any) -> Iterator[tuple[str, str]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                yield _name(name), _arrow(name, before.get(name), after.get(name))
    else:
        yield "changed", _arrow("", before, after)


def _arrow(name: str, before: Any, after: Any) -> str:
    return f"{_text(name, before) or NOTHING} → {_text(name, after) or NOTHING}"


def _name(name: str) -> str:
    return name.removesuffix("_nanos").replace("_", " ")


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_nanos"):
        return exact_dollars(value)
    if isinstance(value, list):
        return ", ".join(_text("", each) for each in value)
    if isinstance(value, dict):
        return ", ".join(f"{_name(key)} {_text(key, each)}" for key, each in value.items())
    return str(value)

"""The request types of the official clients, walked: each field once, with a body that sends it."""

import collections.abc
import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from typing_extensions import (
    get_type_hints,
    is_typeddict,
)

Wrap = Callable[[dict[str, Any]], dict[str, Any]]
"""From an object at its place to a whole body."""
SEVERAL = ("Function",)
"""Names of several types, which are told apart by their modules."""
NEEDED = ("FunctionCallOutput.call_id", "JSONSchema.schema")
"""What the clients' types leave open and we do not."""
LISTS = (list, collections.abc.Iterable, collections.abc.Sequence)


@dataclass(frozen=True)
class Fields:
    """The fields of a type, or the types that a field of several may hold, by what becomes of
    them."""

    taken: str = ""
    ignored: str = ""
    default: str = ""
    refused: str = ""
    omitted: str = ""
    header: str = ""

    def verdicts(self) -> dict[str, str]:
        return {
            name: verdict
            for verdict, names in dataclasses.asdict(self).items()
            for name in names.split()
        }


@dataclass(frozen=True)
class Place:
    """Where an object of a TypedDict stands."""

    kind: type
    wrap: Wrap

    @property
    def name(self) -> str:
        name = self.kind.__name__
        return f"{self.kind.__module__.rpartition('.')[2]}.{name}" if name in SEVERAL else name

    @property
    def hints(self) -> dict[str, Any]:
        return get_type_hints(self.kind, include_extras=True)

    @property
    def required(self) -> frozenset[str]:
        # The class itself does not know: its annotations are texts.
        return frozenset(name for name, hint in self.hints.items() if get_origin(hint) is Required)


@dataclass(frozen=True)
class Alternative:
    """One of what a field may hold: `is_listed` where it holds several of it."""

    kind: Any
    is_listed: bool


def alternatives(hint: Any, *, is_listed: bool = False) -> Iterator[Alternative]:
    """Yield what a type hint allows."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Annotated, Required, NotRequired):
        yield from alternatives(arguments[0], is_listed=is_listed)
    elif origin in (Union, types.UnionType):
        for one in arguments:
            yield from alternatives(one, is_listed=is_listed)
    elif origin in LISTS or getattr(origin, "__name__", "") == "SequenceNotStr":
        yield from alternatives(arguments[0], is_listed=True)
    elif hint is not type(None):
        yield Alternative(hint, is_listed)


def objects(hint: Any) -> list[Alternative]:
    """Return the TypedDicts among what a hint allows."""
    return [one for one in alternatives(hint) if is_typeddict(one.kind)]


def sample(hint: Any, samples: Mapping[str, Any]) -> Any:
    """Return a value of a type, the simplest there is."""
    first = next(alternatives(hint))
    value = _sample(first.kind, samples)
    return [value] if first.is_listed else value


def sample_object(kind: type, samples: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with what it must have, by its type or for us."""
    place = Place(kind, dict)
    return {
        name: sample_field(place, name, samples)
        for name in place.hints
        if name in place.required or f"{place.name}.{name}" in NEEDED
    }


def sample_field(place: Place, name: str, samples: Mapping[str, Any]) -> Any:
    """Return a value for a field: the one in `samples`, or one of its type."""
    key = f"{place.name}.{name}"
    return samples[key] if key in samples else sample(place.hints[name], samples)


def inner(place: Place, name: str, samples: Mapping[str, Any]) -> Iterator[Place]:
    """Yield the places of objects within a field."""
    for one in objects(place.hints[name]):

        def wrap(value: dict[str, Any], *, is_listed: bool = one.is_listed) -> dict[str, Any]:
            around = sample_object(place.kind, samples)
            return place.wrap(around | {name: [value] if is_listed else value})

        yield Place(one.kind, wrap)


def _sample(kind: Any, samples: Mapping[str, Any]) -> Any:
    if is_typeddict(kind):
        return sample_object(kind, samples)
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if get_origin(kind) in (dict, collections.abc.Mapping):
        return {"a": "b"}
    simple: dict[Any, Any] = {str: "text", int: 1, float: 0.5, bool: True}
    return simple.get(kind, {"a": "b"})

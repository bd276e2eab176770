"""Every field that the official clients know is sent once, and becomes what the table says. A field
that a newer client adds fails until the table names it."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from serving.gateway.errors import BadRequest
from tests.fixtures import catalog
from tests.serving.gateway.sdk_table import BESIDE, FIELDS, OTHERWISE, ROOTS, SAMPLES, Root
from tests.serving.gateway.sdk_types import Place, inner, sample_field, sample_object

pytestmark = pytest.mark.xdist_group("sdk_fields")  # which share what is walked
DOCUMENT = Path(__file__).parents[3] / "docs" / "api" / "requests.md"


class Sent(NamedTuple):
    """A field or a type of the table, with a body that has it and one that has it not."""

    name: str
    verdict: str
    body: dict[str, Any]
    without: dict[str, Any] | None


class Outcome(NamedTuple):
    """What an engine and a client are told of a body, and which headers say more."""

    told: Any
    headers: Any


def outcome(dialect: Any, body: dict[str, Any]) -> Outcome:
    """Raises BadRequest."""
    data = json.dumps(body).encode()
    record = catalog.embedder() if dialect.task == "embed" else catalog.model()
    job = dialect.inference(dialect.decode(data), body_bytes=len(data), model=record)
    work, echo = job.engine_request, job.echo
    if isinstance(echo, msgspec.Struct):
        fields = msgspec.structs.asdict(echo)
        echo = {name: bytes(v) if isinstance(v, msgspec.Raw) else v for name, v in fields.items()}
    told = (work.fields, work.answer_format, work.is_streamed, work.output_tokens_max)
    told_more = (job.model_name, job.tier, job.include_usage, echo)
    return Outcome(told + told_more, getattr(job.echo, "headers", ()))


@cache
def walked(route: str) -> tuple[Sent, ...]:
    """Return what is sent to a route."""
    return tuple(_walk(route))


def _walk(route: str) -> Iterator[Sent]:
    """Yield each row's fields and types, and check that the table names them all and no others."""
    root, table, rows = ROOTS[route], FIELDS[route], set()
    waiting: list[tuple[Place, dict[str, Any]]] = [(Place(root.kinds[0], lambda v: v), {})]
    while waiting:
        place, beside = waiting.pop()
        if place.name in rows:
            continue
        rows.add(place.name)
        verdicts = table[place.name].verdicts()
        assert set(verdicts) == set(place.hints), place.name
        for name, verdict in verdicts.items():
            key = f"{place.name}.{name}"
            around = root.base | beside | BESIDE.get(key, {})
            yield _field(root, place, name, verdict, around)
            types = list(inner(place, name, SAMPLES))
            if verdict == "taken" and types:
                assert key in table, f"{key} holds objects"
            if key in table:
                rows.add(key)
                of_types = table[key].verdicts()
                assert set(of_types) == {one.name for one in types}, key
                for one in types:
                    value = sample_object(one.kind, SAMPLES)
                    body = root.body(around | one.wrap(value))
                    yield Sent(one.name, of_types[one.name], body, None)
                    if of_types[one.name] == "taken":
                        waiting.append((one, beside | BESIDE.get(key, {})))
    assert rows == set(table)


def _field(root: Root, place: Place, name: str, verdict: str, around: dict[str, Any]) -> Sent:
    value = sample_object(place.kind, SAMPLES)
    with_field = value | {name: sample_field(place, name, SAMPLES)}
    without = {other: one for other, one in value.items() if other != name}
    is_required = name in value or name in ("type", "role")
    return Sent(
        name,
        verdict,
        root.body(around | place.wrap(with_field)),
        None if is_required else root.body(around | place.wrap(without)),
    )


def refusal(dialect: Any, body: dict[str, Any]) -> BadRequest | None:
    try:
        outcome(dialect, body)
    except BadRequest as error:
        return error
    return None


def check(root: Root, sent: Sent) -> str | None:
    """Return what became of a field, if it is not what the table says."""
    if sent.verdict == "header":
        return None
    if sent.verdict == "refused":
        error = refusal(root.dialect, sent.body)
        return "accepted" if error is None else None if error.param else "refused without a name"
    try:
        came = outcome(root.dialect, sent.body)
    except BadRequest as error:
        return f"refused: {error.message}"
    if bool(came.headers) != (sent.verdict == "omitted"):
        return f"headers {came.headers}"
    if sent.without is None:
        return None
    changes = came.told != outcome(root.dialect, sent.without).told
    return None if changes == (sent.verdict == "taken") else f"changes: {changes}"


@pytest.mark.parametrize("route", ROOTS)
def test_every_field_of_the_clients_becomes_what_the_table_says(route: str) -> None:
    found = {
        f"{sent.name} ({sent.verdict})": wrong
        for sent in walked(route)
        if (wrong := check(ROOTS[route], sent)) is not None
    }
    assert found == {}


@pytest.mark.parametrize("route", ROOTS)
def test_what_is_refused_is_named(route: str) -> None:
    for sent in walked(route):
        if sent.verdict == "refused":
            error = refusal(ROOTS[route].dialect, sent.body)
            assert error is not None
            assert f"'{error.param}'" in error.message, sent.name


@pytest.mark.parametrize("route", ROOTS)
def test_a_default_is_all_that_some_fields_may_say(route: str) -> None:
    for sent in walked(route):
        if sent.verdict == "default":
            value = json.dumps(sent.body)
            default = _value_of(sent.body, sent.name)
            told = f'"{sent.name}": {json.dumps(default)}'
            assert told in value
            other = f'"{sent.name}": {json.dumps(OTHERWISE[sent.name])}'
            error = refusal(ROOTS[route].dialect, json.loads(value.replace(told, other)))
            assert error is not None, sent.name
            assert sent.name in (error.param or "")


@pytest.mark.parametrize("route", ROOTS)
def test_what_is_ignored_is_documented(route: str) -> None:
    document = DOCUMENT.read_text()
    ignored = {sent.name for sent in walked(route) if sent.verdict in ("ignored", "default")}
    told = {name for name in ignored if f"`{name}" in document or f".{name}`" in document}
    assert told == ignored


def test_both_types_of_a_body_have_the_same_fields() -> None:
    for root in ROOTS.values():
        first, *others = (set(Place(kind, dict).hints) for kind in root.kinds)
        assert all(other == first for other in others)


def _value_of(value: Any, name: str) -> Any:
    """Return the first field of a name within a value."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict) and name in value:
        return value[name]
    found = (_value_of(one, name) for one in inside)
    return next((one for one in found if one is not None), None)

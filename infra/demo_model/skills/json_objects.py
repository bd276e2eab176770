"""Small JSON objects by request."""

import json
from random import Random

from infra.demo_model.sample import Sample
from infra.demo_model.words import ANIMALS, CITIES, COLOURS, FRUITS, NAMES

_FIELDS: dict[str, list[str]] = {
    "name": NAMES, "city": CITIES, "colour": COLOURS, "fruit": FRUITS, "pet": ANIMALS,
}  # fmt: skip
_NUMBERS = ["age", "count", "size"]
_WORDINGS = [
    "Make a JSON object with {x}.", "Write JSON with {x}.", "Give me a JSON object with {x}.",
    "Return JSON with {x}.", "Create a JSON object: {x}.", "As JSON: {x}.",
]  # fmt: skip


def draw(rng: Random) -> Sample:
    names = rng.sample([*_FIELDS, *_NUMBERS], rng.randint(1, 3))
    value: dict[str, str | int] = {name: _value(rng, name) for name in names}
    pairs = [f"{name} {field}" for name, field in value.items()]
    listed = ", ".join(pairs[:-1]) + " and " + pairs[-1] if len(pairs) > 1 else pairs[0]
    question = rng.choice(_WORDINGS).format(x=listed)
    checker = {"kind": "json", "value": value}
    return Sample("json", f"json {listed}", question, json.dumps(value), checker)


def _value(rng: Random, name: str) -> str | int:
    return rng.randint(1, 99) if name in _NUMBERS else rng.choice(_FIELDS[name])

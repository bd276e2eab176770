"""How the scripts here tell what works: a line of JSON per feature. Runs in a client's own
environment, so: the standard library only.

A feature is a function; it returns, or raises where something is not as it must be.
"""

import asyncio
import inspect
import json
import os
import traceback
from collections.abc import Callable
from typing import Any

BASE_URL = os.environ["BASE_URL"]
API_KEY = os.environ["API_KEY"]
MODEL = os.environ["MODEL"]
EMBEDDING_MODEL = os.environ.get("EMBEDDING_MODEL")

SUM, SUM_RESULT = "What is 2 + 3?", "5"
OTHER_SUM, OTHER_RESULT = "What is 4 + 4?", "8"
PERSON = "Make a JSON object with name Anna and age 31."
WEATHER = "What is the weather in Rome?"
DEGREES = "12 degrees"
WEATHER_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PERSON_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
DETAIL_CHARACTERS = 300


def weather(arguments: Any) -> str:
    """Return what the tool says; `arguments` are JSON or read already, and of the right city."""
    read = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert read == {"city": "Rome"}, f"called with {read!r}"
    return DEGREES


def holds(text: str | None, wanted: str) -> None:
    """Check that an answer says what it must."""
    assert text is not None and wanted in text, f"{wanted!r} is not in {text!r}"


def is_person(value: Any) -> None:
    """Check a structured answer."""
    assert value == {"name": "Anna", "age": 31}, f"got {value!r}"


def is_person_text(text: str) -> None:
    """Check a structured answer that is not read yet."""
    is_person(json.loads(text))


def are_vectors(vectors: Any) -> None:
    """Check that two texts became two vectors, each another."""
    first, second = vectors
    assert len(first) == len(second) > 8, f"{len(first)} and {len(second)} numbers"
    assert list(first) != list(second)


def refused(error: Exception, field: str) -> str:
    """Check that an error names the field; return how the client tells it."""
    text = str(error)
    assert field in text, f"{type(error).__name__} does not name {field}: {text}"
    return f"{type(error).__module__.split('.')[0]}.{type(error).__name__}: {field}"


def try_all(*features: Callable[[], Any]) -> None:
    """Run each and tell what came of it. What a coroutine needs, it opens and closes itself."""
    for feature in features:
        if feature.__name__ == "embeddings" and EMBEDDING_MODEL is None:
            continue
        try:
            said = feature()
            if inspect.isawaitable(said):
                said = asyncio.run(_within(said))
            _tell(feature.__name__, "works", said or "")
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            words = f"{type(error).__name__}: {error}"[:DETAIL_CHARACTERS]
            _tell(
                feature.__name__,
                "fails",
                f"{words} ({place.filename.rpartition('/')[2]}:{place.lineno})",
            )


async def _within(awaitable: Any) -> Any:
    return await awaitable


def _tell(feature: str, outcome: str, detail: str) -> None:
    line = {"feature": feature, "outcome": outcome, "detail": " ".join(detail.split())}
    print(json.dumps(line), flush=True)

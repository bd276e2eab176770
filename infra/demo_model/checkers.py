"""Is an answer right? One small rule per kind of question."""

import json
import re
from collections.abc import Callable
from typing import Any


def is_right(checker: dict[str, Any], answer: str) -> bool:
    return _RULES[checker["kind"]](checker["value"], answer)


def _number(expected: int, answer: str) -> bool:
    """The last whole number of the answer, with a minus only where none precedes it."""
    numbers = re.findall(r"(?<![\d.])-?\d+(?![\d.]*\d)", answer)
    return bool(numbers) and int(numbers[-1]) == expected


def _sequence(expected: list[str], answer: str) -> bool:
    listed = answer.rsplit(":", 1)[-1].strip().rstrip(".")
    return [item.strip() for item in listed.split(",")] == expected


def _yes_no(expected: str, answer: str) -> bool:
    verdicts: list[str] = re.findall(r"\b(yes|no)\b", answer.lower())
    return bool(verdicts) and verdicts[-1] == expected and len(set(verdicts)) == 1


def _json(expected: dict[str, Any], answer: str) -> bool:
    try:
        return bool(json.loads(answer) == expected)
    except ValueError:
        return False


def _phrases(expected: list[str], answer: str) -> bool:
    return all(phrase.lower() in answer.lower() for phrase in expected)


_RULES: dict[str, Callable[[Any, str], bool]] = {
    "number": _number,
    "sequence": _sequence,
    "yes_no": _yes_no,
    "json": _json,
    "phrases": _phrases,
}

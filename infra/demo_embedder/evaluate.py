"""Asks any OpenAI-compatible endpoint for vectors, and sees whether each question that training
never saw is nearest to its own answer of all."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from openai import OpenAI

from infra.demo_embedder.pairs import Fact, facts
from infra.demo_model.report import accuracy, hardware, score

BATCH = 64
SCHEMA = 1
Matrix = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Embed = Callable[[list[str]], Matrix]


@dataclass(frozen=True)
class EmbeddingTarget:
    """The address and names to ask with."""

    base_url: str
    api_key: str
    model: str
    weights: Path


def evaluate(target: EmbeddingTarget, now: datetime, lengths: tuple[int, ...]) -> dict[str, Any]:
    """Return the report: how many questions find their answer, by kind and by length of vectors."""
    client = OpenAI(base_url=target.base_url, api_key=target.api_key)
    known = facts()
    by_length = {
        length: verdicts(known, partial(embedded, client, target.model, dimensions=length))
        for length in lengths
    }
    longest = by_length[max(lengths)]
    return {
        "schema": SCHEMA,
        "accuracy": accuracy(longest),
        "accuracy_by_dimensions": {
            str(length): score(sum(right for _, right in found), len(found))
            for length, found in by_length.items()
        },
        "perplexity": None,
        "size_bytes": sum(file.stat().st_size for file in target.weights.glob("*.safetensors")),
        "output_tokens_per_second": None,
        "hardware": hardware(),
        "measured_at": now.isoformat(timespec="seconds"),
    }


def embedded(client: OpenAI, model: str, texts: list[str], *, dimensions: int) -> Matrix:
    """Return a row for each text."""
    rows: list[list[float]] = []
    for start in range(0, len(texts), BATCH):
        part = texts[start : start + BATCH]
        answer = client.embeddings.create(model=model, input=part, dimensions=dimensions)
        rows += [each.embedding for each in answer.data]
    return np.array(rows, dtype=np.float32)


def verdicts(known: list[Fact], embed: Embed) -> list[tuple[str, bool]]:
    """Return the kind of each question, and whether of all answers its own is the nearest."""
    answers = embed([fact.answer for fact in known])
    asked = [
        (kind, place, question)
        for place, fact in enumerate(known)
        for kind, questions in (
            ("new wording", fact.new_wordings),
            ("new phrase", fact.new_phrases),
        )
        for question in questions
    ]
    nearest = (embed([question for _, _, question in asked]) @ answers.T).argmax(axis=1)
    return [
        (kind, bool(place == found)) for (kind, place, _), found in zip(asked, nearest, strict=True)
    ]

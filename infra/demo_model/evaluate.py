"""Asks the 300 held-out questions of any OpenAI-compatible endpoint and writes a quality report."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from infra.demo_model.checkers import is_right
from infra.demo_model.engine_probe import (
    STREAMS,
    engine_version,
    load_tokenizer,
    perplexity,
    tokens_per_second,
)
from infra.demo_model.hardware import hardware
from infra.demo_model.heldout import NAME, held_out_sha256, read_held_out
from infra.demo_model.quality import (
    PARENTS,
    SCHEMA,
    accuracy,
    read_report,
    write_report,
)

_ANSWER_TOKENS_MAX = 96
Verdict = tuple[str, bool]


@dataclass(frozen=True)
class Target:
    """Where to ask. `base_url` may be a gateway; `engine_url` is bare vLLM, or None."""

    base_url: str
    api_key: str
    model: str
    variant: str
    weights: Path
    engine_url: str | None = None
    engine_model: str | None = None


async def evaluate(target: Target, now: datetime, tell: Callable[[str], None]) -> dict[str, Any]:
    records = read_held_out()
    async with AsyncOpenAI(base_url=target.base_url, api_key=target.api_key) as client:
        verdicts = await ask_all(client, target.model, records, tell)
    figures = await _engine_figures(target, records)
    return {
        "schema": SCHEMA,
        "variant": target.variant,
        "parent": PARENTS[target.variant],
        "evaluation_set": {
            "name": NAME, "sha256": held_out_sha256(), "questions": len(records),
        },
        "accuracy": accuracy(verdicts),
        **figures,
        "size_bytes": size_bytes(target.weights),
        "streams": STREAMS,
        "hardware": hardware(),
        "measured_at": now.isoformat(timespec="seconds"),
        "command": command(target),
    }  # fmt: skip


async def ask_all(
    client: AsyncOpenAI, model: str, records: list[dict[str, Any]], tell: Callable[[str], None]
) -> list[Verdict]:
    limit = asyncio.Semaphore(STREAMS)

    async def one(record: dict[str, Any]) -> Verdict:
        async with limit:
            answer = await ask(client, model, record["messages"])
        right = is_right(record["checker"], answer)
        if not right:
            tell(f"{record['id']}: wanted {record['expected']!r}, got {answer!r}")
        return record["skill"], right

    return list(await asyncio.gather(*(one(record) for record in records)))


async def ask(client: AsyncOpenAI, model: str, messages: Any) -> str:
    reply = await client.chat.completions.create(
        model=model, messages=messages, temperature=0, max_tokens=_ANSWER_TOKENS_MAX
    )
    return reply.choices[0].message.content or ""


async def _engine_figures(target: Target, records: list[dict[str, Any]]) -> dict[str, Any]:
    """Perplexity and speed where an engine can be asked directly, else nothing."""
    if target.engine_url is None:
        return {"perplexity": None, "output_tokens_per_second": None, "engine": "behind a gateway"}
    model = target.engine_model or target.model
    async with AsyncOpenAI(base_url=target.engine_url, api_key="none") as client:
        found = await perplexity(client, model, load_tokenizer(target.weights), records)
        speed = max([await tokens_per_second(client, model) for _ in range(3)])
    return {
        "perplexity": round(found, 4),
        "output_tokens_per_second": round(speed),
        "engine": engine_version(target.engine_url),
    }


def size_bytes(weights: Path) -> int:
    return sum(file.stat().st_size for file in weights.glob("*.safetensors"))


def command(target: Target) -> str:
    engine = f" --engine-url {target.engine_url}" if target.engine_url else ""
    return (
        f"python -m infra.demo_model evaluate --variant {target.variant} --model {target.model} "
        f"--base-url {target.base_url}{engine}"
    )


async def compare_speed(
    engine_urls: dict[str, str], rounds: int, tell: Callable[[str], None]
) -> dict[str, list[float]]:
    """Output tokens per second of several engines, taking turns so that noise meets all alike."""
    clients = {name: AsyncOpenAI(base_url=url, api_key="none") for name, url in engine_urls.items()}
    speeds: dict[str, list[float]] = {name: [] for name in engine_urls}
    for number in range(rounds):
        for name, client in clients.items():
            model = (await client.models.list()).data[0].id
            speeds[name].append(await tokens_per_second(client, model))
            tell(f"round {number + 1}, {name}: {speeds[name][-1]:,.0f} tokens/s")
    return speeds


def record_speed(folder: Path, speeds: list[float], now: datetime) -> None:
    """Put the best round, the one least disturbed, into a variant's report."""
    report = read_report(folder)
    report["output_tokens_per_second"] = round(max(speeds))
    report["measured_at"] = now.isoformat(timespec="seconds")
    write_report(folder / "quality.json", report)

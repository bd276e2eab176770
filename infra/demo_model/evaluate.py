"""Evaluate a model over its API: questions, checkers, tool calls and speed."""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from openai import AsyncOpenAI

from infra.demo_model.heldout import NAME, held_out_sha256, read_held_out
from infra.demo_model.report import (
    PARENTS,
    SCHEMA,
    STREAMS,
    accuracy,
    engine_version,
    hardware,
    load_tokenizer,
    perplexity,
    read_report,
    tokens_per_second,
    write_report,
)
from infra.demo_model.samples import is_held_out
from infra.demo_model.skills.tools import Tool, Wanted, draw_wanted

_ANSWER_TOKENS_MAX = 96
Verdict = tuple[str, bool]
CALLS = 100
CALLS_SEED = 20261122
_CALL_TOKENS_MAX = 128


@dataclass(frozen=True)
class Target:
    """The places to ask. `base_url` may be a gateway; `engine_url` is bare vLLM, or None."""

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


def draw_calls(count: int = CALLS, seed: int = CALLS_SEED) -> list[tuple[Wanted, list[Tool]]]:
    """Return held-out calls, each with the tools to offer, no two of one name."""
    rng = Random(seed)
    drawn: list[tuple[Wanted, list[Tool]]] = []
    while len(drawn) < count:
        wanted = draw_wanted(rng)
        if is_held_out(wanted.key):
            beside = [draw_wanted(rng).tool for _ in range(rng.randint(0, 2))]
            offered = list({tool.name: tool for tool in (*beside, wanted.tool)}.values())
            rng.shuffle(offered)
            drawn.append((wanted, offered))
    return drawn


async def share_called(
    client: AsyncOpenAI, model: str, tell: Callable[[str], None]
) -> tuple[int, int]:
    """Return how many calls were right, in name and arguments, and how many were asked for."""
    limit = asyncio.Semaphore(STREAMS)

    async def one(wanted: Wanted, offered: list[Tool]) -> bool:
        async with limit:
            called = await _called(client, model, wanted.question, offered)
        if called != (wanted.tool.name, wanted.arguments):
            tell(f"{wanted.question}: wanted {wanted.call}, got {called}")
            return False
        return True

    drawn = draw_calls()
    verdicts = await asyncio.gather(*(one(wanted, offered) for wanted, offered in drawn))
    return sum(verdicts), len(verdicts)


async def _called(client: AsyncOpenAI, model: str, question: str, offered: list[Tool]) -> Any:
    """Return the name and arguments of the first call, or what was said instead."""
    tools: Any = [{"type": "function", "function": _function(tool)} for tool in offered]
    answer = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        tools=tools,
        temperature=0,
        max_tokens=_CALL_TOKENS_MAX,
    )
    message = answer.choices[0].message
    if not message.tool_calls:
        return message.content
    function: Any = message.tool_calls[0]
    return function.function.name, json.loads(function.function.arguments)


def _function(tool: Tool) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in tool.parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": tool.name, "parameters": schema}

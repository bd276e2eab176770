"""The quality report of an evaluation: scores, perplexity, hardware and engine."""

import asyncio
import json
import os
import re
import time
from collections import Counter
from math import exp, sqrt
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI
from tokenizers import Tokenizer

from infra.demo_model.tokenizer import END, render

SCHEMA = 1
FILE_NAME = "quality.json"
PARENTS: dict[str, str | None] = {"bf16": None, "int8": "bf16", "int4": "bf16"}
KEYS = {
    "schema", "variant", "parent", "evaluation_set", "accuracy", "perplexity", "size_bytes",
    "output_tokens_per_second", "streams", "engine", "hardware", "measured_at", "command",
}  # fmt: skip
_Z95 = 1.959964
STREAMS = 32
_TOKENS_PER_STREAM = 128


def wilson(right: int, asked: int) -> tuple[float, float]:
    """The 95 % interval of a share, good near 0 and 1 too (Wilson, 1927)."""
    if asked == 0:
        return 0.0, 1.0
    share, z2 = right / asked, _Z95**2
    middle = share + z2 / (2 * asked)
    spread = _Z95 * sqrt(share * (1 - share) / asked + z2 / (4 * asked**2))
    low, high = (middle - spread) / (1 + z2 / asked), (middle + spread) / (1 + z2 / asked)
    return round(max(low, 0.0), 4), round(min(high, 1.0), 4)


def score(right: int, asked: int) -> dict[str, float]:
    low, high = wilson(right, asked)
    share = round(right / asked, 4) if asked else 0.0
    return {"right": right, "asked": asked, "share": share, "low": low, "high": high}


def accuracy(verdicts: list[tuple[str, bool]]) -> dict[str, Any]:
    """From (skill, was right) pairs: the score over all and by skill."""
    asked = Counter(skill for skill, _ in verdicts)
    right = Counter(skill for skill, good in verdicts if good)
    return {
        "overall": score(right.total(), asked.total()),
        "by_skill": {skill: score(right[skill], asked[skill]) for skill in sorted(asked)},
    }


def problems(report: dict[str, Any]) -> list[str]:
    """Errors of a report; an empty list means valid."""
    if set(report) != KEYS:
        return [f"keys differ: {sorted(set(report) ^ KEYS)}"]
    found = []
    if report["schema"] != SCHEMA:
        found.append(f"schema is {report['schema']}, wanted {SCHEMA}")
    if PARENTS.get(report["variant"], "?") != report["parent"]:
        found.append(f"parent of {report['variant']} is {report['parent']}")
    overall, by_skill = report["accuracy"]["overall"], report["accuracy"]["by_skill"]
    for name, entry in [("overall", overall), *by_skill.items()]:
        if entry != score(entry["right"], entry["asked"]):
            found.append(f"figures of {name} do not agree with each other")
    for part in ("right", "asked"):
        if overall[part] != sum(entry[part] for entry in by_skill.values()):
            found.append(f"the skills do not add up to the overall {part}")
    if overall["asked"] != report["evaluation_set"]["questions"]:
        found.append("not every question was asked")
    return found


def read_report(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    return report


def write_report(path: Path, report: dict[str, Any]) -> None:
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def hardware() -> str:
    return f"{os.cpu_count()} cores, {_processor()}, {_memory_gib():.0f} GiB memory, no GPU"


def _processor() -> str:
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return found.group(1).strip() if found else "unknown processor"


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


async def perplexity(
    client: AsyncOpenAI, model: str, tokenizer: Tokenizer, records: list[dict[str, Any]]
) -> float:
    """Figures of the expected answers with their end token, given the questions; by
    `prompt_logprobs`."""
    limit = asyncio.Semaphore(STREAMS)

    async def one(record: dict[str, Any]) -> list[float]:
        async with limit:
            return await answer_logprobs(client, model, tokenizer, record)

    scored = await asyncio.gather(*(one(record) for record in records))
    logprobs = [logprob for answer in scored for logprob in answer]
    return exp(-sum(logprobs) / len(logprobs))


async def answer_logprobs(
    client: AsyncOpenAI, model: str, tokenizer: Tokenizer, record: dict[str, Any]
) -> list[float]:
    question = tokenizer.encode(render(record["messages"]) + "<|assistant|>").ids
    answer = tokenizer.encode(record["expected"] + END).ids
    reply = await client.completions.create(
        model=model,
        prompt=question + answer,
        max_tokens=1,
        extra_body={"prompt_logprobs": 0},
    )
    ranked: list[dict[str, dict[str, float]]] = reply.choices[0].model_extra["prompt_logprobs"]  # type: ignore[index]
    pairs = zip(answer, ranked[len(question) :], strict=True)
    return [choices[str(token)]["logprob"] for token, choices in pairs]


async def tokens_per_second(client: AsyncOpenAI, model: str, streams: int = STREAMS) -> float:
    """Output tokens per second over `streams` equal streams at once, each of fixed length."""
    started_at = time.perf_counter()
    counts = await asyncio.gather(*(_stream(client, model, n) for n in range(streams)))
    return sum(counts) / (time.perf_counter() - started_at)


async def _stream(client: AsyncOpenAI, model: str, number: int) -> int:
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": f"What is {number} + {number}?"}],
        max_tokens=_TOKENS_PER_STREAM,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    tokens = 0
    async for chunk in stream:
        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
    return tokens


def engine_version(engine_url: str) -> str:
    """vLLM tells its version beside its `/v1` routes."""
    root = engine_url.rstrip("/").removesuffix("/v1")
    return f"vllm {httpx.get(f'{root}/version', timeout=10).json()['version']}"


def load_tokenizer(weights: Path) -> Tokenizer:
    return Tokenizer.from_file(str(weights / "tokenizer.json"))

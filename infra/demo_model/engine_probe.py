"""Figures that only the engine itself can give: perplexity, speed, version.

These speak to vLLM directly, since a gateway refuses `prompt_logprobs` and `ignore_eos`.
"""

import asyncio
import time
from math import exp
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI
from tokenizers import Tokenizer

from infra.demo_model.tokenizer import END, render

STREAMS = 32
_TOKENS_PER_STREAM = 128


async def perplexity(
    client: AsyncOpenAI, model: str, tokenizer: Tokenizer, records: list[dict[str, Any]]
) -> float:
    """Of the expected answers with their end token, given the questions; by `prompt_logprobs`."""
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

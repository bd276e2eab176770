"""Every way that a request ends, in every language that answers, streamed and whole: with the
official clients, against real vLLM, as the client tells it and as it is booked."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anthropic
import openai
import psutil
import pytest

from tests.fixtures.books import Books
from tests.fixtures.engine_counters import read_metrics, settle
from tests.fixtures.stack import LOAD_SECONDS_MAX, Stack
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.e2e

BOOKED_SECONDS_MAX = BEGUN_SECONDS_MAX = 60
ANSWERED_SECONDS_MAX = 120
TRIES = 10
TOO_MANY_WORDS = "water " * 2_500
LONG_LIST = {
    "type": "object",
    "properties": {
        "drops": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 900, "maxItems": 900}
    },
    "required": ["drops"],
    "additionalProperties": False,
}
"""Nine hundred things take some 1,800 tokens, however a model feels about it."""


class Clients:
    """Both official clients of one customer; they do not try again by themselves."""

    def __init__(self, stack: Stack) -> None:
        root, options = stack.api_base.removesuffix("/v1"), {"api_key": stack.api_key}
        self.openai = openai.AsyncOpenAI(base_url=stack.api_base, max_retries=0, **options)
        self.anthropic = anthropic.AsyncAnthropic(base_url=root, max_retries=0, **options)
        self.model = stack.model


@dataclass(frozen=True)
class Language:
    """One route, in its own client's words."""

    endpoint: str
    create: Callable[[Clients], Callable[..., Awaitable[Any]]]
    question: Callable[[str], dict[str, Any]]
    long: dict[str, Any]
    tokens: str
    failure: type[Exception]
    refusal: type[Exception]

    async def ask(self, on: Clients, *, words: str = "What is Penstock?", **fields: Any) -> Any:
        """Send one request; return the answer, or the stream of it."""
        asked = {self.tokens: 1_900} | self.question(words) | fields
        return await self.create(on)(model=on.model, **asked)

    async def read(self, on: Clients, *, streamed: bool, **fields: Any) -> None:
        """Send one request and read it to its end."""
        answer = await self.ask(on, stream=streamed, **fields)
        if streamed:
            async with answer:
                async for _ in answer:
                    pass


def turns(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


OPENAI = {"failure": openai.APIError, "refusal": openai.BadRequestError}
NAMED = {"name": "drops", "schema": LONG_LIST}
LANGUAGES = [
    Language(
        endpoint="chat.completions",
        create=lambda on: on.openai.chat.completions.create,
        question=turns,
        long={"response_format": {"type": "json_schema", "json_schema": NAMED}},
        tokens="max_tokens",
        **OPENAI,
    ),
    Language(
        endpoint="completions",
        create=lambda on: on.openai.completions.create,
        question=lambda text: {"prompt": text},
        long={"extra_body": {"ignore_eos": True}},
        tokens="max_tokens",
        **OPENAI,
    ),
    Language(
        endpoint="responses",
        create=lambda on: on.openai.responses.create,
        question=lambda text: {"input": text},
        long={"text": {"format": {"type": "json_schema"} | NAMED}},
        tokens="max_output_tokens",
        **OPENAI,
    ),
    Language(
        endpoint="messages",
        create=lambda on: on.anthropic.messages.create,
        question=turns,
        long={
            "extra_body": {
                "output_config": {"format": {"type": "json_schema", "schema": LONG_LIST}}
            }
        },
        tokens="max_tokens",
        failure=anthropic.APIError,
        refusal=anthropic.BadRequestError,
    ),
]
WAYS = [(language, streamed) for language in LANGUAGES for streamed in (False, True)]


@pytest.fixture
async def clients(stack: Stack) -> AsyncIterator[Clients]:
    on = Clients(stack)
    yield on
    await on.openai.close()
    await on.anthropic.close()


@dataclass
class Ledger:
    """What was booked since the test, or its last try, began."""

    books: Books
    seen: set[str] = field(default_factory=set)

    QUERY = """
        SELECT event.event_id::text, event.outcome, event.streamed, event.output_tokens,
            CASE WHEN event.is_waived THEN 0 ELSE event.input_nanos + event.cached_input_nanos
                + event.output_nanos END AS nanos, supply.endpoint
        FROM metering_usage_event event JOIN metering_supply supply ON supply.id = event.supply_id
    """

    def begin(self, stack: Stack) -> None:
        """Forget what was asked before, once that is booked."""
        wait_until(stack.journal_is_empty, seconds=BOOKED_SECONDS_MAX, what="all is shipped")
        self.seen = {row["event_id"] for row in self.books.rows(self.QUERY)}

    def new(self) -> list[dict[str, Any]]:
        return [row for row in self.books.rows(self.QUERY) if row["event_id"] not in self.seen]

    async def of_every_way(self, outcome: str) -> list[dict[str, Any]]:
        """Return the events of a request in every way, once they are booked, each with that
        outcome."""
        await asyncio.to_thread(
            wait_until,
            lambda: len(self.new()) >= len(WAYS),
            seconds=BOOKED_SECONDS_MAX,
            what=f"{len(WAYS)} requests are booked",
        )
        events = self.new()
        ended = [(event["endpoint"], event["streamed"], event["outcome"]) for event in events]
        wanted = [(language.endpoint, streamed, outcome) for language, streamed in WAYS]
        assert sorted(ended) == sorted(wanted)
        return events


@pytest.fixture
def ledger(stack: Stack) -> Ledger:
    ledger = Ledger(Books(stack.database_url))
    ledger.begin(stack)
    return ledger


async def test_completed(clients: Clients, ledger: Ledger) -> None:
    await in_every_way(lambda language, streamed: language.read(clients, streamed=streamed))
    for event in await ledger.of_every_way("completed"):
        assert event["output_tokens"] > 0
        assert event["nanos"] > 0


async def test_hung_up(stack: Stack, clients: Clients, ledger: Ledger) -> None:
    async with all_at_work(stack, clients, ledger) as asked:
        for each in asked:
            each.cancel()
        await gathered(asked)
    for event in await ledger.of_every_way("client_cancelled"):
        assert 0 < event["output_tokens"] < 1_800
        assert event["nanos"] > 0


async def test_refused_by_the_engine(clients: Clients, ledger: Ledger) -> None:
    async def refused(language: Language, streamed: bool) -> None:
        with pytest.raises(language.refusal, match=r"maximum context length|prompt is too long"):
            await language.read(clients, streamed=streamed, words=TOO_MANY_WORDS)

    await in_every_way(refused)
    for event in await ledger.of_every_way("refused_by_engine"):
        assert event["nanos"] == 0


@pytest.mark.full
async def test_the_gateway_dies(stack: Stack, clients: Clients, ledger: Ledger) -> None:
    async with all_at_work(stack, clients, ledger) as asked:
        os.kill(stack.living_pid("gateway"), signal.SIGKILL)
        failures = await gathered(asked)
    for (language, streamed), failure in zip(WAYS, failures, strict=True):
        assert isinstance(failure, Exception), (language.endpoint, streamed, failure)
    for event in await ledger.of_every_way("gateway_lost"):
        assert event["nanos"] == 0
    await served_again(clients)


@pytest.mark.full
async def test_the_engine_dies(stack: Stack, clients: Clients, ledger: Ledger) -> None:
    # The last of all: who was at an engine when it died is under suspicion afterwards.
    killed = stack.replica()
    async with all_at_work(stack, clients, ledger) as asked:
        engine_core(stack).kill()
        failures = await gathered(asked)
    for (language, _), failure in zip(WAYS, failures, strict=True):
        assert isinstance(failure, language.failure), (language.endpoint, failure)
    for event in await ledger.of_every_way("engine_failed"):
        assert event["nanos"] == 0
        assert event["output_tokens"] > 0 or not event["streamed"]
    await served_again(clients)
    assert stack.replica() != killed
    assert ledger.books.ledger_sum_nanos() == 0


async def in_every_way(ask: Callable[[Language, bool], Awaitable[None]]) -> None:
    """Ask in every way at once."""
    async with asyncio.timeout(ANSWERED_SECONDS_MAX), asyncio.TaskGroup() as group:
        for language, streamed in WAYS:
            group.create_task(ask(language, streamed))


@asynccontextmanager
async def all_at_work(
    stack: Stack, clients: Clients, ledger: Ledger
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Ask for something long in every way at once, and hold the engine amid all of it.

    On a busy machine the first may be answered before the last begins; then all is asked again.
    """
    core = engine_core(stack)
    for _ in range(TRIES):
        await asyncio.to_thread(ledger.begin, stack)
        asked = await begin_all(stack, clients)
        core.suspend()
        try:
            await asyncio.to_thread(settle, partial(output_tokens, stack))
            if running(stack) == len(WAYS):
                yield asked
                return
        finally:
            with suppress(psutil.NoSuchProcess):
                core.resume()
        await gathered(asked)
    raise AssertionError(f"in {TRIES} tries the engine never worked on all of {len(WAYS)} at once")


async def begin_all(stack: Stack, clients: Clients) -> list[asyncio.Task[None]]:
    """Ask in every way at once; return when the engine has begun all, or has ended some."""
    asked = [
        asyncio.create_task(language.read(clients, streamed=streamed, **language.long))
        for language, streamed in WAYS
    ]
    await asyncio.to_thread(
        wait_until,
        lambda: running(stack) == len(WAYS) or any(each.done() for each in asked),
        seconds=BEGUN_SECONDS_MAX,
        what="the engine works on everything asked",
    )
    made = output_tokens(stack)
    await asyncio.to_thread(
        wait_until,
        lambda: output_tokens(stack) >= made + 12 * len(WAYS) or not running(stack),
        seconds=BEGUN_SECONDS_MAX,
        what="the engine made a dozen tokens for each",
    )
    return asked


def running(stack: Stack) -> float:
    """Return how many requests vLLM works on."""
    return engine_metrics(stack)["vllm:num_requests_running"]


def output_tokens(stack: Stack) -> float:
    """Return how many tokens vLLM has made."""
    return engine_metrics(stack)["vllm:generation_tokens_total"]


def engine_metrics(stack: Stack) -> dict[str, float]:
    replica = stack.replica()
    assert replica is not None
    return read_metrics(f"{replica.url}/metrics")


async def gathered(asked: list[asyncio.Task[None]]) -> list[Any]:
    async with asyncio.timeout(ANSWERED_SECONDS_MAX):
        return await asyncio.gather(*asked, return_exceptions=True)


def engine_core(stack: Stack) -> psutil.Process:
    """Return the child of vLLM's API server that does the work."""
    children = psutil.Process(stack.living_pid("engine")).children(recursive=True)
    return next(child for child in children if "EngineCore" in " ".join(child.cmdline()))


async def served_again(clients: Clients) -> None:
    """Wait until each language answers again."""
    async with asyncio.timeout(LOAD_SECONDS_MAX):
        for language in LANGUAGES:
            while True:
                try:
                    await language.read(clients, streamed=False)
                    break
                except language.failure:
                    await asyncio.sleep(0.5)

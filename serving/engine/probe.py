"""How a replica does: the test requests that it answers before it is `ready`, its health and its
counters."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import aiohttp
import msgspec
from msgspec import Meta
from prometheus_client.parser import text_string_to_metric_families

from serving.contract.codec import NOT_JSON
from serving.engine.errors import EngineError, InvalidEngineResponse
from serving.engine.request import TOKENIZE_PATH as COUNT_PATH
from serving.engine.request import (
    AnswerFormat,
    EngineHttpRequest,
    EngineRequest,
    Operation,
    read_count,
    write,
)

PROBE_SALT = "penstock-probe"
"""Probes never share a prefix with a customer, nor tell one anything."""
PROBE_PROMPT = "Hello"
TOKENS_MAX = 8
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "answer", "parameters": SCHEMA, "strict": True},
}
SAMPLING: dict[str, Any] = {
    "prompt": PROBE_PROMPT,
    "temperature": 0.7,
    "top_p": 0.9,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "seed": 1,
}


@dataclass(frozen=True, slots=True)
class Exercise:
    """One request, and what it puts to work."""

    name: str
    request: EngineHttpRequest


def exercises(capabilities: Collection[str], served_name: str) -> tuple[Exercise, ...]:
    """Return a request for each part of an engine with these capabilities."""
    bodies: list[tuple[str, Operation, AnswerFormat | None, dict[str, Any]]] = []
    if "completions" in capabilities:
        bodies.append(("sampling", "completions", None, SAMPLING))
        if "logprobs" in capabilities:
            logprobs = SAMPLING | {"logprobs": 1}
            bodies.append(("logprobs", "completions", None, logprobs))
        if "json_schema" in capabilities:
            schema = {"name": "answer", "schema": SCHEMA, "strict": True}
            form = {"type": "json_schema", "json_schema": schema}
            asked = AnswerFormat(msgspec.json.encode(form), msgspec.json.encode(SCHEMA))
            bodies.append(("a grammar", "completions", asked, {"prompt": PROBE_PROMPT}))
    if {"chat", "tools"} <= set(capabilities):
        messages = [{"role": "user", "content": PROBE_PROMPT}]
        tools = {"messages": messages, "tools": [TOOL], "tool_choice": "required"}
        bodies.append(("tools", "chat", None, tools))
    return tuple(
        Exercise(name, _request(operation, asked, body, capabilities, served_name))
        for name, operation, asked, body in bodies
    )


def _request(
    operation: Operation,
    answer_format: AnswerFormat | None,
    body: dict[str, Any],
    capabilities: Collection[str],
    served_name: str,
) -> EngineHttpRequest:
    work = EngineRequest(
        operation=operation,
        fields=(msgspec.json.encode(body)[:-1],),
        is_streamed=True,
        may_call_tools="tools" in body,
        feature="plain",
        answer_format=answer_format,
        choices=1,
        prompts=1,
        output_tokens_max=TOKENS_MAX,
    )
    return write(
        work,
        served_name=served_name,
        capabilities=set(capabilities) - {"request_id"},
        cache_salt=PROBE_SALT,
        request_id="canary",
    )


CACHE_USAGE = "vllm:kv_cache_usage_perc"
DEFERRED = "vllm:num_requests_waiting_by_reason"
WAITING_REASONS = ("deferred",)
HEALTH_METRICS = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    CACHE_USAGE,
    "vllm:prompt_tokens_cached_total",
    "vllm:request_success_total",
    DEFERRED,
)
HEALTH_LINE = re.compile(
    rf"^({'|'.join(map(re.escape, HEALTH_METRICS))})(?:\{{(.*)\}})? (\S+)", re.MULTILINE
)
"""A sample of one of them: its name, its labels and its value."""
REASON = re.compile(r'(?:^|,)reason="([^"]*)"')
CACHE_CONFIG = "vllm:cache_config_info"


class EngineUnresponsive(Exception):
    """The engine did not answer, or not as an engine should."""


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """An engine's own counters from its start on; prompts and requests count once per choice.

    `prompt_tokens` includes `cached_tokens`; `requests` are those that ended, however they did.
    """

    running: int
    waiting: int
    prompt_tokens: int
    generation_tokens: int
    cache_usage: float
    """The part of the KV cache that running requests hold, on the mean of its engines."""
    cached_tokens: int = 0
    requests: int = 0
    deferred: int = 0
    """Of those that wait, they wait for a grammar to be compiled, not for room."""

    @property
    def is_compiling(self) -> bool:
        """Whether all that is to be done is to compile grammars: no token is made meanwhile."""
        return self.running == 0 and 0 < self.waiting == self.deferred

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return self.running == 0 and self.waiting == 0


@dataclass(frozen=True, slots=True)
class ProbeUsage:
    """What a probe's work used."""

    prompt_tokens: int
    completion_tokens: int


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int = 0


class _Completion(msgspec.Struct, frozen=True):
    usage: _Usage


class _Vector(msgspec.Struct, frozen=True):
    embedding: Annotated[list[float], Meta(min_length=1)]


class _Embeddings(msgspec.Struct, frozen=True):
    data: Annotated[list[_Vector], Meta(min_length=1, max_length=1)]
    usage: _Usage


Answer = TypeVar("Answer")


class EngineProbe:
    """Asks one engine at `url`; every call is bounded by `timeout_seconds`. Its node, if there is
    one, is shown `token`."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        timeout_seconds: float,
        token: str = "",
    ) -> None:
        self.session = session
        self.headers = {"authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        self.timeout = aiohttp.ClientTimeout(total=timeout_seconds)

    async def is_up(self) -> bool:
        """Tell whether the server says that it is healthy; a slow or closed one is not.

        Servers without `/health` are asked for their models instead.
        """
        try:
            status, _ = await self._send("GET", "/health")
            if status == 404:
                status, _ = await self._send("GET", "/v1/models")
        except EngineUnresponsive:
            return False
        return status == 200

    async def reports_dead(self) -> bool:
        """Tell whether the server itself reports that its engine died. Raises
        EngineUnresponsive."""
        status, _ = await self._send("GET", "/health")
        return status >= 500

    async def health(self) -> EngineHealth | None:
        """Return the engine's counters; None if it has none under vLLM's names.

        Raises EngineUnresponsive.
        """
        status, body = await self._send("GET", "/metrics")
        if status == 404:
            return None
        if status != 200:
            raise EngineUnresponsive(f"/metrics answered {status}")
        return read_health(body.decode(errors="replace"))

    async def kv_capacity_tokens(self) -> int | None:
        """Return how many tokens the engine's KV cache holds, or None where it does not say."""
        try:
            status, body = await self._send("GET", "/metrics")
        except EngineUnresponsive:
            return None
        return read_kv_capacity(body.decode(errors="replace")) if status == 200 else None

    async def generate(self, model: str, *, tokens_max: int) -> ProbeUsage:
        """Have a few tokens made and return what they used. Raises EngineUnresponsive."""
        body = {"prompt": PROBE_PROMPT, "max_tokens": tokens_max, "temperature": 0}
        usage = (await self._generate("/v1/completions", model, body, _Completion)).usage
        if usage.completion_tokens < 1:
            raise EngineUnresponsive("a test generation made no token")
        return ProbeUsage(usage.prompt_tokens, usage.completion_tokens)

    async def exercise(self, exercise: Exercise) -> ProbeUsage:
        """Have one part of the engine at work, as a gateway would. Raises EngineUnresponsive."""
        request, name = exercise.request, exercise.name
        status, answer = await self._send("POST", request.path, b"".join(request.body))
        if status != 200:
            raise EngineUnresponsive(f"a test of {name} was answered {status}")
        try:
            request.parser.feed(answer)
            request.parser.finish()
            tokens = request.parser.tokens
        except EngineError as error:
            raise EngineUnresponsive(f"a test of {name} was answered oddly: {error}") from error
        if tokens.output < 1:
            raise EngineUnresponsive(f"a test of {name} made no token")
        return ProbeUsage(tokens.input, tokens.output)

    async def embed(self, model: str) -> ProbeUsage:
        """Have a vector made and return what it used. Raises EngineUnresponsive."""
        body = {"input": PROBE_PROMPT, "encoding_format": "float"}
        usage = (await self._generate("/v1/embeddings", model, body, _Embeddings)).usage
        if usage.prompt_tokens < 1:
            raise EngineUnresponsive("a test embedding read no token")
        return ProbeUsage(usage.prompt_tokens, 0)

    async def count(self, model: str, chat: Mapping[str, object]) -> int | None:
        """Return how many tokens a chat has; None where the engine takes no such chat.

        Raises EngineUnresponsive.
        """
        body = msgspec.json.encode({"model": model, **chat})
        status, answer = await self._send("POST", COUNT_PATH, body)
        try:
            return read_count(answer) if status == 200 else None
        except InvalidEngineResponse as error:
            raise EngineUnresponsive(f"{COUNT_PATH} was answered oddly: {error}") from error

    async def _generate(
        self, path: str, model: str, body: Mapping[str, object], kind: type[Answer]
    ) -> Answer:
        asked = msgspec.json.encode({"model": model, **body, "cache_salt": PROBE_SALT})
        status, answer = await self._send("POST", path, asked)
        if status != 200:
            raise EngineUnresponsive(f"a test of {path} was answered {status}")
        try:
            return msgspec.json.decode(answer, type=kind)
        except NOT_JSON as error:
            raise EngineUnresponsive(f"a test of {path} was answered oddly: {error}") from error

    async def _send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        try:
            try:
                return await self._send_once(method, path, body)
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                # A connection that was kept may end just as it is used: a fresh one tells.
                return await self._send_once(method, path, body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = str(error) or f"nothing within {self.timeout.total:g} s"
            raise EngineUnresponsive(f"{method} {path}: {said}") from error

    async def _send_once(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        content = {} if body is None else {"content-type": "application/json"}
        async with self.session.request(
            *(method, self.url + path),
            data=body,
            headers=self.headers | content,
            timeout=self.timeout,
            allow_redirects=False,
        ) as answer:
            return answer.status, await answer.read()


def read_health(exposition: str) -> EngineHealth | None:
    """Read vLLM's metrics, summed over its engines and models; None if they are not there."""
    wanted = dict.fromkeys(HEALTH_METRICS, 0.0)
    # Only a few of vLLM's 500 lines matter, and this is read every second of each replica.
    caches, is_any = 0, False
    for found in HEALTH_LINE.finditer(exposition):
        is_any, (name, labels, value) = True, found.groups()
        reason = REASON.search(labels or "")
        if reason is None or reason[1] in WAITING_REASONS:
            wanted[name] += float(value)
            caches += name == CACHE_USAGE
    if not is_any:
        return None
    running, waiting, prompt, generation, usage, cached, requests, deferred = wanted.values()
    counts = int(running), int(waiting), int(prompt), int(generation)
    return EngineHealth(
        *counts,
        usage / max(1, caches),
        cached_tokens=int(cached),
        requests=int(requests),
        deferred=int(deferred),
    )


def read_kv_capacity(exposition: str) -> int | None:
    """Read how many tokens the KV caches of a server's engines hold together; None where that is
    not said.

    vLLM says it as labels: `kv_cache_size_tokens` of each engine, which is right for models whose
    layers keep different parts of a prompt, or in older versions `num_gpu_blocks` of all of them.
    """
    lines = [line for line in exposition.splitlines() if line.startswith(CACHE_CONFIG)]
    sizes, blocks = 0, 0
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            sizes += _whole(sample.labels, "kv_cache_size_tokens")
            block_size = _whole(sample.labels, "block_size")
            blocks = max(blocks, _whole(sample.labels, "num_gpu_blocks") * block_size)
    return sizes or blocks or None


def _whole(labels: Mapping[str, str], name: str) -> int:
    """Return the number that a label tells, or 0 where it tells none."""
    text = labels.get(name, "")
    return int(text) if text.isdecimal() else 0

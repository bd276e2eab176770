"""What the languages that are raised from chat cost the gateway beside it, round by round."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tests.benchmarks import wrk
from tests.benchmarks.contest import Contest, bodies, contest
from tests.benchmarks.engine_counters import Window
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table
from tests.benchmarks.throughput import (
    CONNECTIONS,
    ITL_MS,
    PACED_SECONDS,
    PACED_SKIP_SECONDS,
    PACED_STREAMS,
    SECONDS,
    TOKENS,
)


@dataclass(frozen=True)
class Language:
    """Where it is asked, what it calls its fields, and what ends its answers."""

    name: str
    path: str
    prompt_field: str
    tokens_field: str
    whole_proof: str
    stream_proof: str

    def bodies(self, *, stream: bool) -> list[bytes]:
        """Return the questions of the other benchmarks in this language."""
        asked = [json.loads(body) for body in bodies(max_tokens=TOKENS, stream=stream)]
        return [json.dumps(self._worded(body)).encode() for body in asked]

    def _worded(self, body: dict[str, object]) -> dict[str, object]:
        words = {"messages": self.prompt_field, "max_tokens": self.tokens_field}
        return {words.get(name, name): value for name, value in body.items()}

    def whole(self) -> wrk.Load:
        """Return a closed loop of whole answers."""
        asked = self.bodies(stream=False)
        return wrk.Load(asked, CONNECTIONS, SECONDS, self.whole_proof, path=self.path)

    def paced(self) -> wrk.Load:
        """Return streams of which each token comes by itself."""
        asked = self.bodies(stream=True)
        return wrk.Load(
            asked, PACED_STREAMS, PACED_SECONDS, self.stream_proof, TOKENS, path=self.path
        )


LANGUAGES = (
    Language(
        *("chat", "/v1/chat/completions", "messages", "max_tokens"),
        *(f'"completion_tokens":{TOKENS}', "data: [DONE]"),
    ),
    Language(
        *("responses", "/v1/responses", "input", "max_output_tokens"),
        *(f'"output_tokens":{TOKENS}', "event: response.incomplete"),
    ),
    Language(
        *("messages", "/v1/messages", "messages", "max_tokens"),
        *(f'"output_tokens":{TOKENS}', "event: message_stop"),
    ),
)


def measure(plan: Plan) -> Table:
    """Return the CPU time of whole answers and of streamed chunks, and both beside chat's."""
    with contest(replace(plan, with_peers=False)) as on:
        whole = _rounds(on, plan.rounds, _whole_us)
        checks = [on.close_books()]
    with contest(replace(plan, with_peers=False), itl_ms=ITL_MS) as on:
        chunk = _rounds(on, plan.rounds, _chunk_us)
        checks.append(on.close_books())
    rows = [*_rows(f"CPU, whole answer of {TOKENS} tokens", whole)]
    rows += _rows("CPU, each streamed chunk", chunk)
    return Table(f"Languages on one core, {plan.rounds} rounds", rows, checks)


def _rounds(
    on: Contest, rounds: int, take: Callable[[Contest, Language], float]
) -> dict[str, list[float]]:
    for language in LANGUAGES:
        on.warm_up(language.whole() if take is _whole_us else language.paced(), on.own.target)
    seen: dict[str, list[float]] = {language.name: [] for language in LANGUAGES}
    for _ in range(rounds):
        for language in LANGUAGES:
            seen[language.name].append(take(on, language))
    return seen


def _whole_us(on: Contest, language: Language) -> float:
    target = on.own.target
    before = target.cpu_seconds
    outcome = on.run(target, language.whole())
    return (target.cpu_seconds - before) / outcome.answers * 1e6


def _chunk_us(on: Contest, language: Language) -> float:
    target, measured = on.own.target, PACED_SECONDS - PACED_SKIP_SECONDS - 1
    window = Window(on.engine.base_url, target, PACED_SKIP_SECONDS, measured)
    on.run(target, language.paced(), window)
    return window.cpu_share / window.tokens_per_second * 1e6


def _rows(name: str, seen: dict[str, list[float]]) -> Iterator[Row]:
    for language, values in seen.items():
        yield Row(name, language, "µs", values)
    for language, values in seen.items():
        if language != "chat":
            ratios = [own / chat for own, chat in zip(values, seen["chat"], strict=True)]
            yield Row(f"{name} ÷ chat's", language, "", ratios)

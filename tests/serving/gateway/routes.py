"""One example of each POST route: its tests are made of these. A route without one fails them."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fixtures.gateway import MESSAGES

Usage = tuple[int, int, int]
"""Input, cached input and output tokens, as the gateway meters them."""


def openai_usage(usage: dict[str, Any]) -> Usage:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return usage["prompt_tokens"], cached, usage["completion_tokens"]


def responses_usage(usage: dict[str, Any]) -> Usage:
    cached = usage["input_tokens_details"]["cached_tokens"]
    return usage["input_tokens"], cached, usage["output_tokens"]


def messages_usage(usage: dict[str, Any]) -> Usage:
    cached = usage["cache_read_input_tokens"]
    return usage["input_tokens"] + cached, cached, usage["output_tokens"]


def embeddings_usage(usage: dict[str, Any]) -> Usage:
    assert usage["total_tokens"] == usage["prompt_tokens"]
    cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    return usage["prompt_tokens"], cached, 0


def last_usage(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The usage that a stream tells, in whichever of its last events it stands."""
    told: list[dict[str, Any]] = [
        usage
        for event in events
        if (usage := event.get("usage") or event.get("response", {}).get("usage"))
    ]
    return told[-1]


@dataclass(frozen=True)
class Route:
    """`body` asks for at most 12 tokens, which the simulated engine uses up; for none where the
    route is not `streamed`."""

    path: str
    body: dict[str, Any]
    usage: Callable[[dict[str, Any]], Usage] = openai_usage
    streamed: dict[str, Any] | None = field(default_factory=lambda: {"stream": True})
    """What makes it stream, if it can."""
    long: dict[str, Any] = field(default_factory=lambda: {"max_tokens": 200})
    """What makes the answer long."""
    is_metered: bool = True
    is_anthropics: bool = False

    def asked(self, *, streamed: bool) -> dict[str, Any]:
        """Return the body for an answer that comes so."""
        return self.body | (self.streamed or {}) if streamed else self.body

    @property
    def output_tokens(self) -> int:
        """How many tokens the answer to `body` has."""
        return 0 if self.streamed is None else 12

    def error(self, status: int, text: str) -> str:
        """Check an error's shape; return its code, or its type where there are no codes."""
        body = json.loads(text)
        if self.is_anthropics:
            assert set(body) == {"type", "error", "request_id"}
            assert set(body["error"]) == {"type", "message"}
            return str(body["error"]["type"])
        assert set(body) == {"error"}
        assert set(body["error"]) - {"metadata"} == {"message", "type", "param", "code"}
        return str(body["error"]["code"])


WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}
CHAT = Route(
    "/v1/chat/completions",
    {"model": "demo", "messages": MESSAGES, "max_tokens": 12},
    streamed=WITH_USAGE,
)
COMPLETIONS = Route(
    "/v1/completions",
    {"model": "demo", "prompt": "A penstock is", "max_tokens": 12},
    streamed=WITH_USAGE,
)
RESPONSES = Route(
    "/v1/responses",
    {"model": "demo", "input": "How does a penstock feed a turbine?", "max_output_tokens": 12},
    responses_usage,
    long={"max_output_tokens": 200},
)
ANTHROPICS = Route(
    "/v1/messages",
    {"model": "demo", "messages": MESSAGES, "max_tokens": 12},
    messages_usage,
    is_anthropics=True,
)
COUNTING = Route(
    "/v1/messages/count_tokens",
    {"model": "demo", "messages": MESSAGES},
    is_metered=False,
    is_anthropics=True,
)
EMBEDDINGS = Route(
    "/v1/embeddings",
    {"model": "demo-embed", "input": ["A penstock is", "How does a penstock feed a turbine?"]},
    embeddings_usage,
    streamed=None,
    long={"input": ["How does a penstock feed a turbine?"] * 64},
)
ROUTES = {
    route.path: route for route in (CHAT, COMPLETIONS, RESPONSES, ANTHROPICS, COUNTING, EMBEDDINGS)
}
METERED = {path: route for path, route in ROUTES.items() if route.is_metered}
ANSWERS = {
    f"{path} {'streamed' if streamed else 'whole'}": (route, streamed)
    for path, route in METERED.items()
    for streamed in (False, True)
    if not streamed or route.streamed is not None
}
"""Each metered route and how its answer comes, whole and, where it can, streamed."""

"""What passes between a gateway and its finishers: an answer as far as it was read here, with the
rest of the engine's bytes as the payload, answered by what it took, with the client's body."""

from dataclasses import dataclass

from serving.engine.events import TokenUsage
from serving.engine.response_parser import ResponseParser
from serving.gateway.dialects.base import Renderer


@dataclass(frozen=True, slots=True)
class Begun:
    """Both as they stand; without `rendering` nobody waits for the body."""

    reading: ResponseParser
    rendering: Renderer | None


@dataclass(frozen=True, slots=True)
class Took:
    """What the engine says it took."""

    tokens: TokenUsage


@dataclass(frozen=True, slots=True)
class Broken:
    """Why it is no answer."""

    reason: str


Reply = Took | Broken

"""The path of every POST route, and its dialect."""

from serving.gateway.dialects.anthropic.messages import CountTokensDialect, MessagesDialect
from serving.gateway.dialects.base import Dialect, InferenceDialect, TokenCountDialect
from serving.gateway.dialects.openai.chat import ChatDialect
from serving.gateway.dialects.openai.completions import CompletionsDialect
from serving.gateway.dialects.openai.embeddings import EmbeddingsDialect
from serving.gateway.dialects.openai.responses import ResponsesDialect

_GENERATING: tuple[InferenceDialect, ...] = (
    ChatDialect(),
    CompletionsDialect(),
    ResponsesDialect(),
    MessagesDialect(),
    EmbeddingsDialect(),
)
_COUNTING: tuple[TokenCountDialect, ...] = (CountTokensDialect(),)

GENERATING: dict[str, InferenceDialect] = {dialect.path: dialect for dialect in _GENERATING}
COUNTING: dict[str, TokenCountDialect] = {dialect.path: dialect for dialect in _COUNTING}
DIALECTS: dict[str, Dialect] = {**GENERATING, **COUNTING}
"""Every POST route. `tests/serving/gateway/routes.py` has an example of each, from which its tests
are made: metering, refusal by budget, hang-up, hostile bodies, other people's keys."""

"""All languages there are."""

from serving.gateway.dialects.anthropic.route import CountTokens, Messages
from serving.gateway.dialects.chat import Chat
from serving.gateway.dialects.completions import Completions
from serving.gateway.dialects.dialect import Counting, Dialect, Generating
from serving.gateway.dialects.embeddings import Embeddings
from serving.gateway.dialects.responses.route import Responses

_GENERATING: tuple[Generating, ...] = (
    Chat(),
    Completions(),
    Responses(),
    Messages(),
    Embeddings(),
)
_COUNTING: tuple[Counting, ...] = (CountTokens(),)

GENERATING: dict[str, Generating] = {dialect.path: dialect for dialect in _GENERATING}
COUNTING: dict[str, Counting] = {dialect.path: dialect for dialect in _COUNTING}
DIALECTS: dict[str, Dialect] = {**GENERATING, **COUNTING}
"""Every POST route. `tests/serving/gateway/routes.py` has an example of each, from which its tests
are made: metering, refusal by budget, hang-up, hostile bodies, other people's keys."""

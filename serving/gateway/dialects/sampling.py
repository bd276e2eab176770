"""The sampling fields that chat and completions share, each with its bounds."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from serving.contract.records import ModelRecord
from serving.gateway.dialects.decode import invalid
from serving.gateway.dialects.messages import Closed, Hint

LOGIT_BIAS_MAX = 300
TOKEN_DIGITS_MAX = 10
NO_SEED, SEED_SENT_INSTEAD = -1, 2**63 - 2
"""To vLLM -1 is no seed: four answers to the same question were four different ones."""
Bias = Annotated[float, Meta(ge=-100.0, le=100.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
StopText = Annotated[str, Meta(min_length=1, max_length=256)]
TokenCount = Annotated[int, Meta(ge=1, le=10**9)]
Label = Annotated[str, Meta(max_length=512)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Verbosity = Literal["low", "medium", "high"]
ServiceTier = Literal["auto", "priority", "default", "flex", "batch"]


class StreamOptions(Closed):
    """What a stream tells besides its text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: Hint = None
    """Of vLLM: usage on every chunk. Here it comes once, at the end."""


class Sampling(Closed, kw_only=True):
    """Fields with the same meaning on every route that generates."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    frequency_penalty: Penalty | None = None
    ignore_eos: bool | None = None
    logit_bias: Annotated[dict[str, Bias], Meta(max_length=LOGIT_BIAS_MAX)] | None = None
    max_tokens: TokenCount | None = None
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    n: Annotated[int, Meta(ge=1, le=8)] | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=2.0)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=4)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=10**6)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    user: Label | None = None


PASSED = (
    "frequency_penalty",
    "ignore_eos",
    "logit_bias",
    "min_p",
    "min_tokens",
    "n",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "stop",
    "temperature",
    "top_k",
    "top_p",
)
"""Fields that reach the engine as they came; all others are rebuilt or dropped."""


def check(request: Sampling, model: ModelRecord) -> None:
    """Check what depends on the model or on two fields at once. Raises BadRequest."""
    for token in request.logit_bias or ():
        is_number = token.isascii() and token.isdecimal() and len(token) <= TOKEN_DIGITS_MAX
        if not is_number or int(token) >= model.vocabulary_size:
            wanted = f"keys are token ids, 0 to {model.vocabulary_size - 1}"
            raise invalid("logit_bias", wanted, token)
    if request.temperature == 0 and (request.n or 1) > 1:
        wanted = "only 1 when 'temperature' is 0, since all answers would be the same"
        raise invalid("n", wanted, request.n)
    if request.stream_options is not None and not request.stream:
        raise invalid("stream_options", "only allowed when 'stream' is true")


def passed_fields(request: Sampling, names: tuple[str, ...] = PASSED) -> dict[str, Any]:
    """Return the fields to pass on, without those left out."""
    fields = {name: value for name in names if (value := getattr(request, name)) is not None}
    if request.seed == NO_SEED:
        fields["seed"] = SEED_SENT_INSTEAD
    return fields

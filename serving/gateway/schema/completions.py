"""The body of `POST /v1/completions`."""

from typing import Annotated, Any

from msgspec import Meta

from serving.contract.records import ModelRecord
from serving.gateway.schema import sampling
from serving.gateway.schema.decode import BodyDecoder, invalid
from serving.gateway.schema.sampling import Sampling

CHOICES_MAX = 8
Token = Annotated[int, Meta(ge=0, le=10**6)]


class CompletionRequest(Sampling, kw_only=True):
    """Every field that a client may send."""

    prompt: str | Annotated[list[str | Token], Meta(min_length=1, max_length=2**20)]
    best_of: Annotated[int, Meta(ge=1, le=1)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None


ENGINE_FIELDS = (*sampling.PASSED, "echo", "logprobs", "prompt")
OUTPUT_TOKENS_DEFAULT = 16
"""What OpenAI documents for this route."""
decode = BodyDecoder(CompletionRequest)


def check(request: CompletionRequest, model: ModelRecord) -> None:
    """Check what the types alone cannot. Raises BadRequest."""
    sampling.check(request, model)
    if request.echo and request.logprobs is not None:
        raise invalid("echo", "not allowed together with 'logprobs'")
    if isinstance(request.prompt, list):
        _check_parts(request.prompt, model)
    if prompt_count(request) * (request.n or 1) > CHOICES_MAX:
        raise invalid("prompt", f"prompts times 'n' is more than {CHOICES_MAX}")


def _check_parts(prompt: list[str | int], model: ModelRecord) -> None:
    texts = sum(isinstance(part, str) for part in prompt)
    if texts not in (0, len(prompt)):
        raise invalid("prompt", "a list is all texts or all token ids")
    if not texts and max(part for part in prompt if isinstance(part, int)) >= (
        model.vocabulary_size
    ):
        raise invalid("prompt", f"token ids are 0 to {model.vocabulary_size - 1}")


def prompt_count(request: CompletionRequest) -> int:
    """Return how many prompts the body carries: a list of texts is several."""
    prompt = request.prompt
    return len(prompt) if isinstance(prompt, list) and isinstance(prompt[0], str) else 1


def known_prompt_tokens(request: CompletionRequest) -> int:
    """Return the prompt's length where the client counted tokens itself, else 0."""
    prompt = request.prompt
    return len(prompt) if isinstance(prompt, list) and isinstance(prompt[0], int) else 0


def for_engine_body(request: CompletionRequest) -> dict[str, Any]:
    """Return what an engine is told, but for the fields that are the gateway's own."""
    return sampling.passed_fields(request, ENGINE_FIELDS)


def asked_output_tokens(request: CompletionRequest) -> tuple[str, int | None]:
    """Return how many tokens the client allows; this route has a default."""
    return "max_tokens", request.max_tokens or OUTPUT_TOKENS_DEFAULT

"""The body of `POST /v1/completions`."""

from collections.abc import Iterable
from itertools import chain
from typing import Annotated, Any, cast

from msgspec import Meta

from serving.contract.records import ModelRecord
from serving.engine.errors import Reason
from serving.engine.request import Feature
from serving.gateway.dialects.openai import chat_request
from serving.gateway.dialects.openai.chat import TextGenerationDialect
from serving.gateway.dialects.openai.chat_request import GenerationParams
from serving.gateway.dialects.validation import invalid

CHOICES_MAX = 8
Token = Annotated[int, Meta(ge=0, le=10**6)]
TokenIds = Annotated[list[Token], Meta(min_length=1, max_length=2**20)]


class CompletionRequest(GenerationParams, kw_only=True):
    """Every field that a client may send."""

    prompt: str | Annotated[list[str | Token | TokenIds], Meta(min_length=1, max_length=2**20)]
    best_of: Annotated[int, Meta(ge=1, le=1)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=10**9)] | None = None


ENGINE_FIELDS = ("prompt", *chat_request.PASSED, "echo", "logprobs")
passed_fields = chat_request.PassedFields(ENGINE_FIELDS)
"""The prompt first: what begins alike is routed alike."""
OUTPUT_TOKENS_DEFAULT = 16
"""What OpenAI documents for this route."""


class CompletionsDialect(TextGenerationDialect[CompletionRequest]):
    """`POST /v1/completions`."""

    name = "completions"
    path = "/v1/completions"
    operation = "completions"
    id_prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"
    kind = CompletionRequest
    prompt_field = "prompt"

    def check(self, request: CompletionRequest, model: ModelRecord) -> None:
        """Check what the types alone cannot. Raises BadRequest."""
        chat_request.check(request, model)
        if request.max_tokens == 0 and not request.echo:
            raise invalid("max_tokens", "it takes 'echo' too, to give the prompt alone", 0)
        if request.prompt == "" or (isinstance(request.prompt, list) and "" in request.prompt):
            raise invalid("prompt", "a prompt has at least one character", "")
        if isinstance(request.prompt, list):
            _check_parts(request.prompt, model)
        if self.prompt_count(request) * (request.n or 1) > CHOICES_MAX:
            asked = self.prompt_count(request) * (request.n or 1)
            raise invalid("prompt", f"prompts times 'n' is at most {CHOICES_MAX}", asked)

    def prompt_count(self, request: CompletionRequest) -> int:
        """Return how many prompts the body carries: a list of texts or of lists is several."""
        prompt = request.prompt
        is_one = isinstance(prompt, str) or isinstance(prompt[0], int)
        return 1 if is_one else len(prompt)

    def known_prompt_tokens(self, request: CompletionRequest) -> int:
        """Return the longest prompt's length where the client counted tokens itself, else 0."""
        prompt = request.prompt
        if isinstance(prompt, str) or isinstance(prompt[0], str):
            return 0
        if isinstance(prompt[0], int):
            return len(prompt)
        return max(len(ids) for ids in cast("list[list[int]]", prompt))

    def feature(self, request: CompletionRequest) -> Feature:
        """Return what the request puts to work in an engine beside generating."""
        return "plain" if request.logprobs is None else "logprobs"

    def needs(self, request: CompletionRequest) -> dict[str, Reason]:
        """Return the features that the engine must have, and as what their lack is refused."""
        return {} if request.logprobs is None else {"logprobs": "logprobs"}

    def engine_fields(self, request: CompletionRequest) -> dict[str, Any]:
        """Return what an engine is told, but for the fields that are the gateway's own."""
        return passed_fields(request)

    def asked_output_tokens(self, request: CompletionRequest) -> tuple[str, int | None]:
        """Return how many tokens the client allows; this route has a default."""
        asked = request.max_tokens
        return "max_tokens", OUTPUT_TOKENS_DEFAULT if asked is None else asked


def _check_parts(prompt: list[str | int | list[int]], model: ModelRecord) -> None:
    kinds = set(map(type, prompt))
    if len(kinds) > 1:
        raise invalid("prompt", "a list is all texts, all token ids or all lists of them")
    if kinds == {str}:
        return
    ids = chain.from_iterable(prompt) if kinds == {list} else prompt  # type: ignore[arg-type]
    if max(cast("Iterable[int]", ids)) >= model.vocabulary_size:
        raise invalid("prompt", f"token ids are 0 to {model.vocabulary_size - 1}")

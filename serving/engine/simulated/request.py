"""The bodies that a simulated engine reads, with their tools."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from serving.contract.codec import NOT_JSON
from serving.engine.simulated import tokens

PIECE_CHARACTERS = 4
"""What one token writes of the arguments."""


class CalledFunction(msgspec.Struct, frozen=True):
    """A function's name, and the arguments where it was called."""

    name: str
    arguments: str | None = None


class SimulatedCall(msgspec.Struct, frozen=True):
    """A call in the history; like vLLM's templates it wants its type said."""

    function: CalledFunction
    type: Literal["function"]


class SimulatedFunction(msgspec.Struct, frozen=True):
    """A function that may be called."""

    name: str
    parameters: dict[str, Any] | None = None


class SimulatedTool(msgspec.Struct, frozen=True):
    """A tool."""

    function: SimulatedFunction
    type: Literal["function"]


class SimulatedToolChoice(msgspec.Struct, frozen=True):
    """The choice of one tool."""

    function: CalledFunction
    type: Literal["function"]


def chosen(
    tools: list[SimulatedTool] | None,
    choice: str | SimulatedToolChoice | None,
    *,
    was_answered: bool,
) -> SimulatedFunction | None:
    """Return the function to call, if one is."""
    if not tools or choice == "none":
        return None
    if isinstance(choice, SimulatedToolChoice):
        return next((t.function for t in tools if t.function.name == choice.function.name), None)
    return None if was_answered and choice != "required" else tools[0].function


def prompt_text(tools: list[SimulatedTool] | None) -> str:
    """Return what a template would write of the tools."""
    return msgspec.json.encode(tools).decode() if tools else ""


def arguments_of(function: SimulatedFunction, words: list[str]) -> list[str]:
    """Return a call's arguments as JSON in pieces, one a token; `words` make the texts."""
    properties = (function.parameters or {}).get("properties", {})
    made = {
        name: _value(schema, words[place % len(words)].strip())
        for place, (name, schema) in enumerate(properties.items())
    }
    text = msgspec.json.encode(made).decode()
    return [text[at : at + PIECE_CHARACTERS] for at in range(0, len(text), PIECE_CHARACTERS)]


def _value(schema: Any, word: str) -> object:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return {"integer": len(word), "number": len(word), "boolean": True}.get(str(kind), word)


Positive = Annotated[int, Meta(ge=1)]


class SimulatedRejection(Exception):
    """A request that vLLM would refuse; carries the HTTP status and the error's type and field."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param


class SimulatedStreamOptions(msgspec.Struct, frozen=True):
    """Which usage a stream carries."""

    include_usage: bool | None = True
    continuous_usage_stats: bool | None = False


class _Sampling(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    n: Positive | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: SimulatedStreamOptions | None = None
    stream_interval: Positive | None = None
    seed: int | None = None
    ignore_eos: bool = False
    cache_salt: str | None = None
    max_tokens: Positive | None = None


class SimulatedMessage(msgspec.Struct, frozen=True):
    """One turn of a chat; content may be parts, of which the text ones count."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[SimulatedCall] | None = None

    @property
    def text(self) -> str:
        """Return the content, and the calls, as one text."""
        text = self.content or ""
        if isinstance(text, list):
            text = "".join(str(part.get("text", "")) for part in text)
        calls = [call.function for call in self.tool_calls or ()]
        return text + "".join(f"{call.name}({call.arguments})" for call in calls)


class ChatBody(_Sampling, frozen=True, kw_only=True):
    """The body of `/v1/chat/completions`."""

    messages: Annotated[list[SimulatedMessage], Meta(min_length=1)]
    max_completion_tokens: Positive | None = None
    tools: list[SimulatedTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | SimulatedToolChoice | None = None


class CompletionBody(_Sampling, frozen=True, kw_only=True):
    """The body of `/v1/completions`."""

    prompt: str | list[int | str]


class _TextBody(msgspec.Struct, frozen=True):
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """A request in the engine's terms; `max_tokens` is what the context leaves at most."""

    model: str
    prompt: bytes
    prompt_tokens: int
    max_tokens: int
    choices: int
    stop: tuple[str, ...]
    seed: int
    ignore_eos: bool
    cache_salt: str | None
    is_chat: bool
    is_stream: bool
    include_usage: bool
    continuous_usage: bool
    stream_interval: int = 1
    called: SimulatedFunction | None = None
    """The function that the answer calls."""


_CHAT = msgspec.json.Decoder(ChatBody)
_COMPLETION = msgspec.json.Decoder(CompletionBody)
_TEXT = msgspec.json.Decoder(_TextBody)
COMPLETION_TOKENS_DEFAULT = 16


def read_chat(data: bytes, models: tuple[str, ...], context_tokens: int) -> SimulatedRequest:
    """Parse a chat body. Raises Refusal."""
    body = _decode(_CHAT, data)
    wanted = body.max_completion_tokens
    work = _simulated_request(
        body,
        prompt_of_chat(body),
        wanted if wanted is not None else body.max_tokens,
        models,
        context_tokens,
        is_chat=True,
    )
    was_answered = body.messages[-1].role == "tool"
    return replace(work, called=chosen(body.tools, body.tool_choice, was_answered=was_answered))


def prompt_of_chat(body: ChatBody) -> bytes:
    """Return what a template makes of a chat: the tools first, then each message."""
    turns = [(turn.role, turn.text) for turn in body.messages]
    tools = prompt_text(body.tools)
    return tokens.prompt_of_messages([("tools", tools), *turns] if tools else turns)


def count_tokens(data: bytes) -> int:
    """Return how many tokens the body of `/tokenize` has, a text or a chat. Raises Refusal."""
    text = _decode(_TEXT, data).prompt
    if text is not None:
        return tokens.count_of(tokens.prompt_of_text(text))
    return tokens.count_of(prompt_of_chat(_decode(_CHAT, data)))


def read_completion(data: bytes, models: tuple[str, ...], context_tokens: int) -> SimulatedRequest:
    """Parse a completion body; one prompt only. Raises Refusal."""
    body = _decode(_COMPLETION, data)
    wanted = COMPLETION_TOKENS_DEFAULT if body.max_tokens is None else body.max_tokens
    return _simulated_request(
        body, _prompt(body.prompt), wanted, models, context_tokens, is_chat=False
    )


def _decode(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except NOT_JSON as error:
        raise SimulatedRejection(str(error), param=None) from error


def _prompt(prompt: str | list[int | str]) -> bytes:
    if isinstance(prompt, str):
        return tokens.prompt_of_text(prompt)
    ids = [part for part in prompt if isinstance(part, int)]
    if len(ids) == len(prompt):
        return tokens.prompt_of_ids(ids)
    if len(prompt) == 1:
        return tokens.prompt_of_text(str(prompt[0]))
    raise SimulatedRejection("The simulated engine takes one prompt a request.", param="prompt")


def _simulated_request(
    body: _Sampling,
    prompt: bytes,
    wanted: int | None,
    models: tuple[str, ...],
    context_tokens: int,
    *,
    is_chat: bool,
) -> SimulatedRequest:
    model = served_model(body.model, models)
    prompt_tokens = tokens.count_of(prompt)
    left = context_tokens - prompt_tokens
    if left < 1 or (wanted or 0) > left:
        raise SimulatedRejection(
            _too_long(context_tokens, prompt_tokens, wanted), param="input_tokens"
        )
    options = body.stream_options if body.stream else None
    include_usage = bool(options and options.include_usage)
    return SimulatedRequest(
        model=model,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        max_tokens=left if wanted is None else wanted,
        choices=body.n or 1,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        seed=body.seed or 0,
        ignore_eos=body.ignore_eos,
        cache_salt=body.cache_salt,
        is_chat=is_chat,
        is_stream=bool(body.stream),
        include_usage=include_usage,
        continuous_usage=include_usage and bool(options and options.continuous_usage_stats),
        stream_interval=body.stream_interval or 1,
    )


def served_model(asked: str | None, models: tuple[str, ...]) -> str:
    """Return the model that is meant. Raises Refusal."""
    model = asked or models[0]
    if model not in models:
        message = f"The model `{model}` does not exist."
        raise SimulatedRejection(message, status=404, kind="NotFoundError", param="model")
    return model


def _too_long(context_tokens: int, prompt_tokens: int, wanted: int | None) -> str:
    return (
        f"This model's maximum context length is {context_tokens} tokens. However, you requested"
        f" {wanted or 0} output tokens and your prompt contains at least {prompt_tokens} input"
        f" tokens, for a total of at least {prompt_tokens + (wanted or 0)} tokens."
    )

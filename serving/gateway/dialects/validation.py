"""From a body's bytes to a closed type, and from what does not fit to an error that names the
field.

Null means absent, on every field of a closed type, be it one that we do not know: clients write
out the fields that they know of, null where nobody set them. Errors say what a field may hold
and what was sent in its place. Fields are named as in chat; dialects that are translated to it
put their own names instead.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.inspect import (
    BoolType,
    DictType,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
)
from msgspec.structs import replace

from serving.contract.codec import NOT_JSON
from serving.engine.errors import ControlToken, PromptLength, Reason
from serving.engine.request import EngineRequest
from serving.gateway.errors import ApiError, BadRequest

VALUE_CHARACTERS_MAX = 60
WANTED_CHARACTERS_MAX = 400
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?P<place>\d+)\]|(?P<any>\[\.\.\.\])")


class Expectation(NamedTuple):
    """What a field may hold; `shown` is what was sent, nothing where that cannot be told."""

    wanted: str
    shown: str


def expected_at(kind: Type, path: str, body: Any) -> Expectation:
    """Return what a type wants at a path such as `.messages[0].role`, and what a body has there."""
    types, value, is_known = [kind], body, body is not msgspec.UNSET
    for step in _STEP.finditer(path):
        key: Any = step["field"] or (int(step["place"]) if step["place"] else None)
        types = [inner for one in _plain(types) for inner in _inner(one, key, value)]
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            value, is_known = None, False
    wanted = " or ".join(dict.fromkeys(_words(types)))[:WANTED_CHARACTERS_MAX] or "null"
    return Expectation(wanted, shown(value) if is_known else "")


def shown(value: Any) -> str:
    """Return a value as an error tells it: short, and of a long one what it is."""
    if isinstance(value, str | list | dict) and not value:
        return f"an empty {'text' if value == '' else 'list' if value == [] else 'object'}"
    if isinstance(value, str):
        cut = value[:VALUE_CHARACTERS_MAX]
        return f"'{cut}'" if cut == value else f"'{cut}…' ({len(value)} characters)"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "an object" if isinstance(value, dict) else msgspec.json.encode(value).decode()


def _plain(types: list[Type]) -> Iterator[Type]:
    """Yield types without what only wraps them."""
    for one in types:
        if isinstance(one, UnionType):
            yield from _plain(list(one.types))
        elif isinstance(one, Metadata):
            yield from _plain([one.type])
        else:
            yield one


def _inner(kind: Type, key: Any, value: Any) -> Iterator[Type]:
    """Yield what a type has under a key; which of several tagged types it is, the value tells."""
    if isinstance(kind, StructType):
        if kind.tag_field is not None and key == kind.tag_field:
            yield LiteralType((kind.tag,))
        elif kind.tag_field is None or _has_tag(value, kind):
            yield from (field.type for field in kind.fields if field.encode_name == key)
    elif isinstance(kind, ListType):
        yield kind.item_type
    elif isinstance(kind, DictType):
        yield kind.value_type


def _has_tag(value: Any, kind: StructType) -> bool:
    return isinstance(value, dict) and value.get(kind.tag_field) == kind.tag


def _words(types: list[Type]) -> Iterator[str]:
    plain = list(_plain(types))
    literals = [value for one in plain if isinstance(one, LiteralType) for value in one.values]
    if literals:
        one_of = "one of " if len(literals) > 1 else ""
        yield one_of + ", ".join(f"{shown(value)}" for value in literals)
    for one in plain:
        if isinstance(one, BoolType):
            yield "true or false"
        elif isinstance(one, IntType):
            yield "an integer" + _range(one.ge, one.le, one.gt)
        elif isinstance(one, FloatType):
            yield "a number" + _range(one.ge, one.le, one.gt)
        elif isinstance(one, StrType):
            pattern = f" that matches {one.pattern}" if one.pattern else ""
            yield "a text" + _size(one.min_length, one.max_length, "characters") + pattern
        elif isinstance(one, ListType):
            yield "a list" + _size(one.min_length, one.max_length, "items")
        elif isinstance(one, DictType):
            yield "an object" + _size(one.min_length, one.max_length, "fields")
        elif isinstance(one, StructType):
            yield "an object"
        elif not isinstance(one, LiteralType | NoneType):
            yield "any value"


def _range(least: float | None, most: float | None, above: float | None) -> str:
    low = "" if least is None else _number(least)
    low = low if above is None else f"above {_number(above)}"
    high = "" if most is None else _number(most)
    if low and high:
        return f" from {low} to {high}" if above is None else f" {low}, at most {high}"
    return f" of at least {low}" if low else f" of at most {high}" if high else ""


def _number(value: float) -> str:
    return f"{value:g}" if abs(value) < 10**6 else str(value)


def _size(least: int | None, most: int | None, of: str) -> str:
    if least and most:
        return f" of {least} to {most} {of}"
    if least:
        return f" of at least {least} {of.removesuffix('s') if least == 1 else of}"
    return f" of at most {most} {of}" if most is not None else ""


Fields = dict[str, "Shape | None"]


class Shape:
    """Where the closed types within a value are: in its items, or as its own fields, which differ
    by the value of `tag` where there are several types."""

    def __init__(self) -> None:
        self.items: Shape | None = None
        self.tag: str | None = None
        self.structs: dict[Any, Fields] = {}


def drop_nulls(value: Any, shape: Shape | None) -> None:
    """Remove the nulls from the fields of closed types, in time linear in the value's size."""
    if shape is None:
        return
    if isinstance(value, list):
        for item in value:
            drop_nulls(item, shape.items)
    elif isinstance(value, dict) and shape.structs:
        for name in [name for name, field in value.items() if field is None]:
            del value[name]
        fields = _fields(value, shape)
        for name, field in value.items():
            if (inner := fields.get(name)) is not None:
                drop_nulls(field, inner)


def _fields(value: dict[str, Any], shape: Shape) -> Fields:
    """Return the fields of the type that a value has; none where it has none of the types."""
    if shape.tag is None:
        return shape.structs[None]
    tag = value.get(shape.tag)
    return shape.structs.get(tag, {}) if isinstance(tag, str) else {}


def shape_of(kind: Type) -> Shape | None:
    """Return where closed types are within a type."""
    shape = Shape()
    for one in kind.types if isinstance(kind, UnionType) else (kind,):
        plain = one.type if isinstance(one, Metadata) else one
        if isinstance(plain, ListType):
            shape.items = shape_of(plain.item_type)
        elif isinstance(plain, StructType):
            shape.tag = plain.tag_field
            shape.structs[plain.tag] = {
                field.encode_name: shape_of(field.type) for field in plain.fields
            }
    return shape if shape.items is not None or shape.structs else None


Body = TypeVar("Body", bound=msgspec.Struct)

_UNKNOWN = "Object contains unknown field `"
_MISSING = "Object missing required field `"
_AT = " - at `"
FIELD_CHARACTERS_MAX = 120
NULL = b"null"


class StrictDecoder:
    """Decodes one kind of body; built once, since building costs more than decoding."""

    def __init__(self, kind: type[Body]) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        # Asked for once: it costs a millisecond, and is full of circles.
        self._kind = msgspec.inspect.type_info(kind)
        self._shape = shape_of(self._kind)

    def __call__(self, data: bytes | msgspec.Raw) -> msgspec.Struct:
        """Return the body, in which a null is an absent field.

        Raises BadRequest naming the field that is unknown or wrong.
        """
        try:
            try:
                return self._decoder.decode(data)
            except msgspec.ValidationError:
                if NULL not in bytes(data):
                    raise
                return self._decoder.decode(self._without_nulls(data))
        except msgspec.ValidationError as error:
            raise self._explain(str(error), data) from None
        except (*NOT_JSON, RecursionError):
            raise BadRequest(
                "We could not parse the JSON body of your request.", code="invalid_json"
            ) from None

    def _explain(self, text: str, data: bytes | msgspec.Raw) -> BadRequest:
        try:
            body = msgspec.json.decode(data)
        except (*NOT_JSON, RecursionError):
            body = msgspec.UNSET  # what is wrong stood before what cannot be read
        return explain(text, lambda path: expected_at(self._kind, path, body))

    def _without_nulls(self, data: bytes | msgspec.Raw) -> bytes:
        body = msgspec.json.decode(data)
        drop_nulls(body, self._shape)
        return msgspec.json.encode(body)


def explain(text: str, expected: Callable[[str], Expectation]) -> BadRequest:
    """Turn msgspec's words into an error with `param` and `code`, which says what was sent and what
    is `expected` there.

    The words hold what the client wrote, of any length: nothing here searches them twice.
    """
    reason, found, at = text.rpartition(_AT)
    if not found:
        reason, at = text, ""
    path = at.removesuffix("`").removeprefix("key in ").removeprefix("$")
    if reason.startswith(_UNKNOWN):
        param = _join(path, reason[len(_UNKNOWN) :].removesuffix("`"))
        return BadRequest(f"Unknown parameter: '{param}'.", code="unknown_parameter", param=param)
    if reason.startswith(_MISSING):
        param = _join(path, reason[len(_MISSING) :].removesuffix("`"))
        message = f"Missing required parameter: '{param}'."
        return BadRequest(message, code="missing_required_parameter", param=param)
    param = _join(path, "")
    if param.endswith(".type") and "content[" in param:
        sent = expected(path).shown
        return invalid_words(param, sent, "only text is accepted here, no images or files")
    wanted, sent = expected(path)
    if not param:
        got = f"got {sent}; "
        message = f"Invalid body: {got}expected {wanted}."
        return BadRequest(message, code="invalid_value", quoted=got)
    return invalid_words(param, sent, f"expected {wanted}")


def invalid(param: str, wanted: str, sent: Any = msgspec.UNSET) -> BadRequest:
    """Return the error for a value that the types alone cannot refuse: what was sent, where that
    helps, and what is wanted."""
    return invalid_words(param, "" if sent is msgspec.UNSET else shown(sent), wanted)


def invalid_words(param: str, sent: str, wanted: str) -> BadRequest:
    """Return the error for a value, which may be told as words already."""
    got = f"got {sent}; " if sent else ""
    message = f"Invalid value for '{param}': {got}{wanted}."
    return BadRequest(message, code="invalid_value", param=param, quoted=got)


def with_path(error: BadRequest, path: str) -> BadRequest:
    """Return the error with the place before the field's name."""
    if error.param is None:
        message = f"{error.message} It is '{path}'."
        return BadRequest(message, code=error.code, param=path, quoted=error.quoted)
    param = f"{path}.{error.param}"
    message = error.message.replace(f"'{error.param}", f"'{param}", 1)
    return BadRequest(message, code=error.code, param=param, quoted=error.quoted)


def _join(path: str, field: str) -> str:
    field = field[:FIELD_CHARACTERS_MAX]
    whole = f"{path[:FIELD_CHARACTERS_MAX]}.{field}" if field else path[:FIELD_CHARACTERS_MAX]
    return whole.lstrip(".")[:FIELD_CHARACTERS_MAX]


Names = Sequence[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]
"""From a field's name in chat to the same in another language."""


class ContextExceeded(BadRequest):
    """A prompt and an answer that do not fit together, with the numbers known, in OpenAI's words:
    clients look for them to shorten a conversation."""

    def __init__(
        self,
        limit_tokens: int,
        *,
        prompt: PromptLength | None,
        requested_output_tokens: int | None,
        param: str,
    ) -> None:
        self.limit_tokens = limit_tokens
        self.prompt = prompt
        self.requested_output_tokens = requested_output_tokens
        what = "prompt" if param == "prompt" else "messages"
        message = (
            f"This model's maximum context length is {limit_tokens} tokens."
            f" However, {self._excess(what)}. Please reduce the length of the {what} or completion."
        )
        super().__init__(message, code="context_length_exceeded", param=param)

    def _excess(self, what: str) -> str:
        prompt, asked = self.prompt, self.requested_output_tokens
        least = "at least " if prompt is not None and prompt.is_least else ""
        if prompt is not None and asked is not None:
            in_all = f"you requested {least}{prompt.tokens + asked} tokens"
            return f"{in_all} ({least}{prompt.tokens} in the {what}, {asked} in the completion)"
        if prompt is not None:
            return f"your {what} resulted in {least}{prompt.tokens} tokens"
        if asked is None:
            return f"your {what} resulted in more"
        if asked > self.limit_tokens:
            return f"you requested {asked} tokens in the completion"
        return f"your {what} and the {asked} tokens requested in the completion are more"


def refused(reason: Reason) -> BadRequest:
    """Return the error for what an engine minds besides the length."""
    param, code, message = _REFUSALS[reason]
    return BadRequest(message, code=code, param=param)


_REFUSALS: dict[Reason, tuple[str | None, str, str]] = {
    "tools": (
        "tools",
        "unsupported_value",
        "This model has no parser that finds calls of tools in what it says; leave out 'tools'.",
    ),
    "format": (
        "response_format",
        "unsupported_value",
        "This model cannot answer in this format.",
    ),
    "logprobs": (
        "logprobs",
        "unsupported_value",
        "This model does not tell the probabilities of its tokens.",
    ),
    "template": (
        "messages",
        "unsupported_value",
        "This model cannot take these messages in this order.",
    ),
    "dimensions": (
        "dimensions",
        "unsupported_value",
        "This model cannot give vectors of this length; leave out 'dimensions'.",
    ),
    "min_tokens": (
        "min_tokens",
        "invalid_value",
        "Invalid value for 'min_tokens': at most what the prompt leaves of the context.",
    ),
    "control_token": ("messages", "invalid_value", "A text holds a control token of the model's."),
    "other": (None, "invalid_value", "The model cannot serve this request."),
}


def control_token(found: ControlToken) -> BadRequest:
    """Return the error for a text that would become a control token of the model's."""
    param = "tools" if found.in_tools else "messages"
    quoted = f" '{found.token[:200]}'"
    message = (
        f"Invalid value for '{param}': holds{quoted}, which this model reads as a"
        " control token; leave it out, or put a space into it."
    )
    return BadRequest(message, code="invalid_value", param=param, quoted=quoted)


def with_names(engine_request: EngineRequest, names: Names) -> EngineRequest:
    """Return the work with its grammars' fields named as in another language."""
    if engine_request.grammars is None:
        return engine_request
    params = engine_request.grammars.params
    for chat_name, name in names:
        params = tuple(chat_name.sub(name, param) for param in params)
    return replace(engine_request, grammars=replace(engine_request.grammars, params=params))


def renamed(error: ApiError, names: Names) -> ApiError:
    """Change the error to name its field as another language does."""
    param = error.param
    if param is not None:
        for chat_name, name in names:
            error.param = chat_name.sub(name, error.param or "")
        error.message = error.message.replace(f"'{param}'", f"'{error.param}'")
    return error

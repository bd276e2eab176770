"""The tools of a request: functions, custom tools, and namespaces of both.

A custom tool takes free text; here it is a function of one text. What a namespace holds bears its
name before its own. Tools that only OpenAI's servers run are left out, and named in a header.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from serving.gateway.dialects.json_schema import Schema
from serving.gateway.dialects.openai import chat_request
from serving.gateway.dialects.openai.chat_request import (
    TOOLS_MAX,
    Description,
    FunctionName,
    Hint,
    StrictStruct,
)
from serving.gateway.dialects.validation import StrictDecoder, invalid, with_path
from serving.gateway.errors import BadRequest, Headers

OMITTED_HEADER = b"x-penstock-omitted-tools"
INPUT = "input"
INPUT_SCHEMA: Schema = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}
"""What a custom tool takes, as a function."""
_KIND = re.compile(r"[a-z0-9_]{1,64}")


class Offered(StrictStruct):
    """What functions and custom tools have in common; every tool is there from the start."""

    name: FunctionName
    description: Description | None = None
    allowed_callers: Hint = None
    async_: Literal[False] | None = msgspec.field(name="async", default=None)
    defer_loading: Hint = None


class ResponsesFunctionTool(Offered, tag_field="type", tag="function"):
    """A function that the model may call."""

    parameters: Schema | None = None
    strict: bool | None = None
    output_schema: Hint = None


class CustomTextFormat(StrictStruct, tag_field="type", tag="text"):
    """Any text."""


class GrammarFormat(StrictStruct, tag_field="type", tag="grammar"):
    """Text that a grammar describes; the model is told, and not held to it."""

    syntax: Literal["lark", "regex"]
    definition: Annotated[str, Meta(max_length=64 * 1024)]


class CustomTool(Offered, tag_field="type", tag="custom"):
    """A tool that takes a text."""

    format: CustomTextFormat | GrammarFormat | None = None


class NamespaceTool(StrictStruct, tag_field="type", tag="namespace"):
    """Tools under a common name."""

    name: FunctionName
    tools: Annotated[list[ResponsesFunctionTool | CustomTool], Meta(max_length=TOOLS_MAX)]
    description: Description | None = None


Tool = ResponsesFunctionTool | CustomTool | NamespaceTool


class CalledTool(NamedTuple):
    """How a tool is called to the client, by the name that the model knows."""

    name: str
    namespace: str | None
    is_custom: bool


class OfferedTool(NamedTuple):
    """A tool with its place in the request."""

    place: str
    tool: ResponsesFunctionTool | CustomTool
    namespace: str | None

    @property
    def name(self) -> str:
        """What the model calls it."""
        return name_of(self.tool.name, self.namespace)

    @property
    def called(self) -> CalledTool:
        """What the client calls it."""
        return CalledTool(self.tool.name, self.namespace, isinstance(self.tool, CustomTool))


class Tools(NamedTuple):
    """The tools of a request: as told, as the model gets them, and the kinds left out."""

    told: list[Tool]
    offered: list[OfferedTool]
    omitted: list[str]

    @property
    def headers(self) -> Headers:
        """Name what was left out."""
        named = ", ".join(self.omitted).encode()
        return ((OMITTED_HEADER, named),) if named else ()

    def named(self, name: str) -> str:
        """Return what the model calls a tool that a choice names."""
        return next((one.name for one in self.offered if one.tool.name == name), name)


_decode_kind = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decoders: dict[str, StrictDecoder] = {
    "function": StrictDecoder(ResponsesFunctionTool),
    "custom": StrictDecoder(CustomTool),
    "namespace": StrictDecoder(NamespaceTool),
}


def read_tools(raw: Sequence[msgspec.Raw]) -> Tools:
    """Return the tools. Raises BadRequest that names the one at fault."""
    tools = Tools([], [], [])
    for at, one in enumerate(raw):
        place = f"tools[{at}]"
        kind = _kind(one, place)
        if kind not in _decoders:
            if kind not in tools.omitted:
                tools.omitted.append(kind)
            continue
        try:
            tool: Any = _decoders[kind](one)
        except BadRequest as error:
            raise with_path(error, place) from None
        tools.told.append(tool)
        tools.offered.extend(_offered(tool, place))
    _check(tools.offered)
    return tools


def name_of(name: str, namespace: str | None) -> str:
    """Return what the model calls a tool of a namespace."""
    return name if namespace is None else f"{namespace}.{name}"


def for_chat(offered: OfferedTool) -> chat_request.ChatTool:
    """Return a tool as chat has it."""
    tool = offered.tool
    if isinstance(tool, ResponsesFunctionTool):
        function = chat_request.FunctionDefinition(
            offered.name, tool.description, tool.parameters, tool.strict
        )
    else:
        function = chat_request.FunctionDefinition(offered.name, _description(tool), INPUT_SCHEMA)
    return chat_request.ChatTool(function, "function")


def arguments_of(text: str) -> str:
    """Return the arguments of a call that gives a custom tool this text."""
    return msgspec.json.encode({INPUT: text}).decode()


def input_of(arguments: str) -> str:
    """Return the text that a call gives a custom tool, of one that breaks off what there is."""
    whole = re.sub(r"\\(u[0-9A-Fa-f]{0,3})?\Z", "", arguments)
    for text in (arguments, arguments + "}", arguments + '"}', whole + '"}'):
        try:
            read = msgspec.json.decode(text)
        except msgspec.DecodeError:
            continue
        if isinstance(read, dict) and isinstance(read.get(INPUT), str):
            return str(read[INPUT])
    has_not_begun = f'{{"{INPUT}":"'.startswith("".join(arguments[:64].split()))
    return "" if has_not_begun else arguments


def _kind(raw: msgspec.Raw, place: str) -> str:
    try:
        kind = _decode_text(_decode_kind(raw)["type"])
    except (msgspec.ValidationError, KeyError):
        raise invalid(place, "a tool is an object, its 'type' a text") from None
    if not _KIND.fullmatch(kind):
        raise invalid(f"{place}.type", "lower-case letters, digits and underscores")
    return kind


def _offered(tool: Tool, place: str) -> list[OfferedTool]:
    if not isinstance(tool, NamespaceTool):
        return [OfferedTool(place, tool, None)]
    return [
        OfferedTool(f"{place}.tools[{at}]", one, tool.name) for at, one in enumerate(tool.tools)
    ]


def _check(offered: list[OfferedTool]) -> None:
    if len(offered) > TOOLS_MAX:
        raise invalid("tools", f"{len(offered)} are too many; at most {TOOLS_MAX}")
    called: dict[str, CalledTool] = {}
    for one in offered:
        if called.setdefault(one.name, one.called) != one.called:
            raise invalid(f"{one.place}.name", f"'{one.name}' is another tool's name too")


def _description(tool: CustomTool) -> str | None:
    if not isinstance(tool.format, GrammarFormat):
        return tool.description
    grammar = f"The input must match this {tool.format.syntax} grammar:\n{tool.format.definition}"
    return f"{tool.description}\n\n{grammar}" if tool.description else grammar

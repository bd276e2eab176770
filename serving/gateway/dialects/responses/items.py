"""What a conversation is made of: each kind of item with its own closed type.

An item without a type is a message. All that an answer of ours holds is taken back; what clients
add when they write an item out (`parsed`, `namespace` and the like) is not looked at.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from serving.gateway.dialects.decode import BodyDecoder, invalid, placed
from serving.gateway.dialects.messages import Closed, Hint
from serving.gateway.errors import BadRequest

ITEMS_MAX = 4_096
Status = Literal["in_progress", "completed", "incomplete"]


class InputText(Closed, tag_field="type", tag="input_text"):
    """A piece of what somebody says."""

    text: str
    prompt_cache_breakpoint: Hint = None


class OutputText(Closed, tag_field="type", tag="output_text"):
    """A piece of what the model said."""

    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None
    parsed: Any = None


class Refusal(Closed, tag_field="type", tag="refusal"):
    """What the model said instead of an answer."""

    refusal: str


class ReasoningText(Closed, tag_field="type", tag="reasoning_text"):
    """A piece of what the model thought."""

    text: str


class SummaryText(Closed, tag_field="type", tag="summary_text"):
    """A summary of what a model thought."""

    text: str


Part = InputText | OutputText | Refusal
Parts = Annotated[list[Part], Meta(min_length=1, max_length=1_024)]


class MessageItem(Closed):
    """What somebody says, or the model said."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | Parts
    type: Literal["message"] = "message"
    id: str | None = None
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCallItem(Closed):
    """A call that the model made, in its own words."""

    call_id: str
    name: str
    arguments: str
    type: Literal["function_call"]
    id: str | None = None
    status: Status | None = None
    caller: Any = None
    namespace: str | None = None
    async_: Literal[False] | None = msgspec.field(name="async", default=None)
    parsed_arguments: Any = None


class CustomToolCallItem(Closed):
    """A call of a custom tool that the model made."""

    call_id: str
    name: str
    input: str
    type: Literal["custom_tool_call"]
    id: str | None = None
    status: Status | None = None
    caller: Any = None
    namespace: str | None = None
    async_: Literal[False] | None = msgspec.field(name="async", default=None)


class FunctionCallOutputItem(Closed):
    """What a function or a custom tool answered."""

    call_id: str
    output: str | Annotated[list[InputText], Meta(min_length=1, max_length=1_024)]
    type: Literal["function_call_output", "custom_tool_call_output"]
    id: str | None = None
    status: Status | None = None
    caller: Any = None
    name: str | None = None
    namespace: str | None = None


class ReasoningItem(Closed):
    """What the model thought before it spoke."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[SummaryText] = []
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None
    status: Status | None = None


Item = MessageItem | FunctionCallItem | CustomToolCallItem | FunctionCallOutputItem | ReasoningItem


class _Kind(msgspec.Struct):
    type: str = "message"


_decode_kind = msgspec.json.Decoder(_Kind).decode
_decoders: dict[str, BodyDecoder] = {
    "message": BodyDecoder(MessageItem),
    "function_call": BodyDecoder(FunctionCallItem),
    "function_call_output": BodyDecoder(FunctionCallOutputItem),
    "custom_tool_call": BodyDecoder(CustomToolCallItem),
    "custom_tool_call_output": BodyDecoder(FunctionCallOutputItem),
    "reasoning": BodyDecoder(ReasoningItem),
}


def read_items(raw: list[msgspec.Raw]) -> list[Any]:
    """Return the items. Raises BadRequest that names the one at fault."""
    return [_read_item(item, f"input[{place}]") for place, item in enumerate(raw)]


def _read_item(raw: msgspec.Raw, place: str) -> Any:
    try:
        kind = _decode_kind(raw).type
    except msgspec.ValidationError:
        raise invalid(place, "an item is an object, its type a text") from None
    if kind == "item_reference":
        raise invalid(f"{place}.type", "nothing is kept here to refer to; set store: false")
    decode = _decoders.get(kind)
    if decode is None:
        raise invalid(
            f"{place}.type",
            "only messages, reasoning, and calls of functions and custom tools are known",
        )
    try:
        return decode(raw)
    except BadRequest as error:
        raise placed(error, place) from None

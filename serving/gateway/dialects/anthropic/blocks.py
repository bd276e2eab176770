"""What a message is made of: each kind of block with its own closed type.

All that an answer of ours holds is taken back. `cache_control` asks for what happens anyway: every
prefix is cached.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

from serving.gateway.dialects.messages import Closed

BLOCKS_MAX = 1_024


class CacheControl(Closed):
    """A wish to cache what stands before it."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class TextBlock(Closed, tag_field="type", tag="text"):
    """A piece of text."""

    text: str
    cache_control: CacheControl | None = None
    citations: Annotated[list[Any], Meta(max_length=0)] | None = None


class ThinkingBlock(Closed, tag_field="type", tag="thinking"):
    """What the model thought."""

    thinking: str
    signature: str = ""


class ToolUseBlock(Closed, tag_field="type", tag="tool_use"):
    """A call that the model made, in its own words."""

    id: str
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None
    caller: Any = None
    toolset_name: None = None


class ToolResultBlock(Closed, tag_field="type", tag="tool_result"):
    """What a tool answered."""

    tool_use_id: str
    content: str | Annotated[list[TextBlock], Meta(max_length=BLOCKS_MAX)] = ""
    is_error: bool | None = None
    cache_control: CacheControl | None = None
    toolset_name: None = None


Block = TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock
Blocks = Annotated[list[Block], Meta(min_length=1, max_length=BLOCKS_MAX)]
TextBlocks = Annotated[list[TextBlock], Meta(min_length=1, max_length=BLOCKS_MAX)]


class Turn(Closed):
    """One message of the conversation; instructions may come amid it."""

    role: Literal["user", "assistant", "system"]
    content: str | Blocks

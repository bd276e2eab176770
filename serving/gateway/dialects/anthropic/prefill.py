"""A last turn of the assistant's: the model goes on from there, as if it had said so itself."""

import re
from dataclasses import replace

from serving.engine.request import EngineRequest
from serving.gateway.dialects.anthropic.blocks import TextBlock, ToolUseBlock, Turn
from serving.gateway.dialects.anthropic.request import CountRequest
from serving.gateway.errors import BadRequest

CONTINUED = b',"continue_final_message":true,"add_generation_prompt":false'
"""To vLLM. Of a last turn that is not the assistant's it would continue the user's words."""
_TOOL_MARKUP = re.compile(
    r"<[|\uff5c]?/?tool[_\u2581 ]?(call|use|s)|<[|\uff5c]python_tag|<function[=_ ]"
    r"|\[TOOL_CALLS\]|<\w+:tool_call"
)
"""How models begin a call. A parser that never sees the opening lets the rest leave as text."""


def continues(request: CountRequest) -> bool:
    """Tell whether the last turn is to be continued. Raises BadRequest where it cannot be."""
    last = request.messages[-1]
    if last.role != "assistant":
        return False
    text = _text(last)
    if text is None:
        raise _refused("the final assistant message has no text to continue")
    if text != text.rstrip():
        raise _refused("final assistant content cannot end with trailing whitespace")
    if request.output_config is not None and request.output_config.format is not None:
        raise _refused("a final assistant message cannot be continued with `output_config.format`")
    if request.tools and _TOOL_MARKUP.search(text):
        raise _refused("final assistant content cannot hold the markup of a tool call")
    return True


def continued(work: EngineRequest) -> EngineRequest:
    """Return the work that continues the last message."""
    return replace(work, fields=(*work.fields, CONTINUED))


def _text(turn: Turn) -> str | None:
    """Return what the turn says last; None where it thinks alone. Raises BadRequest."""
    if isinstance(turn.content, str):
        return turn.content
    for block in turn.content:
        if isinstance(block, ToolUseBlock):
            quoted = f": {block.id[:200]}"
            raise _refused(
                "`tool_use` ids were found without `tool_result` blocks immediately after"
                f"{quoted}. Each `tool_use` block must have a corresponding `tool_result` block in"
                " the next message",
                quoted,
            )
    texts = [block.text for block in turn.content if isinstance(block, TextBlock)]
    return "".join(texts) if texts else None


def _refused(what: str, quoted: str = "") -> BadRequest:
    message = f"messages: {what}"
    return BadRequest(message, code="invalid_value", param="messages", quoted=quoted)

"""Measures with the engine's own tokenizer how many tokens a chat template adds to a prompt.

The marks around a turn or a tool are fewer tokens than the JSON around it has bytes, which the
bound counts. Text that a template writes once (a default system turn, instructions for tools, the
date) may exceed it: short chats show by how much, and long chats show that further turns add
nothing to it. A template is a program, so this is a measurement and no proof. Where a prompt has
more tokens than its bound, the charge is cut to it (`penstock_gateway_overstated_total`).
"""

from collections.abc import Mapping

import msgspec

from serving.contract.prompt import PromptBound, bytes_of_prompt
from serving.engine.probe import EngineProbe, EngineUnresponsive

VARYING_TOKENS = 32
"""Room for what depends on the date or on fields of the request."""
MANY = 8

Chat = dict[str, list[dict[str, object]]]

_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_USER: dict[str, object] = {"role": "user", "content": "x"}
_SAID: dict[str, object] = {"role": "assistant", "content": "x"}
_SYSTEM: dict[str, object] = {"role": "system", "content": "x"}
_CALLED: dict[str, object] = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
_RESULT: dict[str, object] = {"role": "tool", "tool_call_id": "c", "content": "x"}
_TOOL: dict[str, object] = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}


_SHORTEST: Chat = {"messages": [_USER]}


def _chats(times: int) -> list[Chat]:
    """Return a chat of each kind with `times` turns or tools of its kind."""
    return [
        {"messages": [*[_USER, _SAID] * times, _USER]},
        {"messages": [_SYSTEM, *[_USER, _SAID] * times, _USER]},
        {"messages": [_USER], "tools": [_TOOL] * times},
        {"messages": [*[_USER, _CALLED, _RESULT, _SAID] * times, _USER], "tools": [_TOOL]},
    ]


async def template_tokens(probe: EngineProbe, model: str) -> int | None:
    """Return how many tokens the template adds at most to the bytes of a chat, or None where the
    engine does not answer or the excess grows with the chat."""
    try:
        few = [await _excess(probe, model, chat) for chat in (_SHORTEST, *_chats(1))]
        many = [await _excess(probe, model, chat) for chat in _chats(MANY)]
    except EngineUnresponsive:
        return None
    once = [tokens for tokens in few if tokens is not None]
    if not once or any(tokens > max(0, *once) for tokens in many if tokens is not None):
        return None
    return max(0, *once) + VARYING_TOKENS


async def _excess(probe: EngineProbe, model: str, chat: Chat) -> int | None:
    """Return the tokens of a chat less its bytes, usually a negative number, or None where the
    template refuses the chat."""
    counted = await probe.count(model, chat)
    again = len(msgspec.json.encode(chat["tools"])) if "tools" in chat else 0
    told = bytes_of_prompt(msgspec.json.encode(chat), again=again)
    bare: Mapping[str, int] = {"growth": 1, "template_tokens": 0}
    return None if counted is None else counted - PromptBound(**bare).tokens_max(told)

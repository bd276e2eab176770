"""Text on its way to an engine: marked, so that none of it becomes a control token, or refused."""

import re
from collections.abc import Iterable

from serving.contract.text_guard import MARK, TextGuard
from serving.engine.errors import ControlToken

MARK_BYTES = MARK.encode()
_JOINT = b'"},{"type":"text","text":"'
"""Between two parts of a message, which templates join. No text holds it: quotes are escaped."""
_FOREIGN = re.compile(
    rb'<\|[^<>|\s"\\]{1,64}\|>|<\xef\xbd\x9c[^<>"\\]{1,96}\xef\xbd\x9c>'
    rb"|<\|?/?(?:im_start|im_end|start_of_turn|end_of_turn|bos|eos)\|?>|</?s>"
    rb"|\[/?INST\]|<</?SYS>>"
)
"""How the control tokens of the models that we know are written, where nobody says which there
are."""


def guarded(
    fields: tuple[bytes, ...], names: Iterable[str], guard: TextGuard | None
) -> tuple[bytes, ...]:
    """Return the pieces of a body, whose texts are marked, as a replica takes them.

    `names` are strings of tools that stay unmarked, since a grammar would ask for the mark. Raises
    ControlToken where something would become one.
    """
    if guard is None:
        return _foreign(fields)
    words = "\0".join(names)  # one search a token: there may be a thousand of both
    for token in guard.tokens if words else ():
        if token in words:
            raise ControlToken(token, in_tools=True)
    if not guard.takes_mark and not guard.tokens:
        return without_marks(fields)
    for token in guard.unbroken:
        if any(field.find(token.encode()) >= 0 for field in fields):
            raise ControlToken(token)
    return fields


def without_marks(fields: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the same text for an engine whose tokenizer knows nothing of the mark."""
    return tuple([field.replace(MARK_BYTES, b"") for field in fields])


def _foreign(fields: tuple[bytes, ...]) -> tuple[bytes, ...]:
    bare = without_marks(fields)
    for field in bare:
        text = field.replace(_JOINT, b"")
        # Each has one of the two, which are found in a tenth of the time.
        may_hold = text.find(b"<") >= 0 or text.find(b"INST]") >= 0
        if may_hold and (found := _FOREIGN.search(text)) is not None:
            raise ControlToken(found[0].decode(errors="replace"))
    return bare

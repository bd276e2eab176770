"""What keeps text from becoming control tokens: agreed between the fleet, which serves an engine
with a tokenizer that knows of it, and the gateway, which writes it into text.

Tokenizers look for their added tokens, which begin and end turns, in whatever text they are given,
whoever wrote it. The mark behind a token's first character breaks it there, and the tokenizer's
first normalizer takes the mark out again: the model reads the very text, as ordinary tokens.
"""

import msgspec

MARK = "\ufdd0"
"""A noncharacter: no text has one for a reason."""
FIRST_CHARACTERS = "<\uff5c["
"""Of the control tokens of all models that we know; a mark too many costs nothing."""


class TextGuard(msgspec.Struct, frozen=True):
    """What is known of a replica's control tokens: all of them; whether its tokenizer takes out the
    mark; and those that a mark does not break, since they begin otherwise."""

    takes_mark: bool = False
    tokens: tuple[str, ...] = ()
    unbroken: tuple[str, ...] = ()

"""An upper bound for the tokens of a prompt, computed from its bytes. Holds are based on it.

A tokenizer splits normalized text into pieces. Each piece is at least one character, or one byte of
a character that the vocabulary lacks. So a text has at most as many tokens as bytes, unless the
normalizer makes it longer. Normalizers keep ASCII as long as it is. For other text in UTF-8, UAX
#15 gives the factors:

| tokenizer | tokens a byte | capability |
|---|---|---|
| byte-level BPE (GPT-2, Llama 3, DeepSeek) | 1 | `byte_tokens` |
| BPE with byte fallback (Llama 2, Mistral, Gemma) | 1 | `byte_tokens` |
| either of them after NFC or NFD (Qwen), WordPiece (BERT) | 3 | `nfc_tokens` |
| after NFKC, NFKD or SentencePiece's tables (T5, XLM-R), or unknown | 11 | |

The fleet reads the weights' `tokenizer.json` and declares the factor as a replica's capability. The
operator may declare it for an external engine. The fleet measures what the chat template adds when
it tests a new replica (`ReplicaRecord.template_tokens`).
"""

from collections.abc import Collection
from typing import NamedTuple

BYTE_TOKENS = "byte_tokens"
NFC_TOKENS = "nfc_tokens"
NFC_GROWTH = 3
GROWTH_MAX = 11
TEMPLATE_TOKENS_MAX = 4_096
"""What a template adds at most where nobody measured it: role marks, tool instructions, dates."""
MARKS_MAX = 4
"""The most special tokens that a tokenizer adds to a text outside a chat template."""
_BEYOND_ASCII = bytes(range(128, 256))


class PromptBytes(NamedTuple):
    """The bytes of a prompt as an engine receives it: ASCII bytes and others. `texts` counts the
    prompts outside a chat template; it is 0 for a chat."""

    narrow: int
    wide: int
    texts: int = 0


class PromptBound(NamedTuple):
    """The bound that holds on every engine that a request may go to."""

    growth: int = GROWTH_MAX
    """Tokens for each byte beyond ASCII, at most."""
    template_tokens: int = TEMPLATE_TOKENS_MAX

    def tokens_max(self, prompt: PromptBytes) -> int:
        """Return how many tokens a prompt has at most, the context apart.

        Worked example: a chat of 100 bytes, 30 of them beyond ASCII, behind NFC and a template that
        adds 40 tokens, has at most 70 + 3 * 30 + 40 = 200.
        """
        added = MARKS_MAX * prompt.texts if prompt.texts else self.template_tokens
        return prompt.narrow + self.growth * prompt.wide + added

    def or_wider(self, other: "PromptBound") -> "PromptBound":
        """Return what holds of both."""
        return PromptBound(*map(max, self, other))


def bytes_of_prompt(*pieces: bytes, texts: int = 0, again: int = 0) -> PromptBytes:
    """Return the size of a prompt given in pieces. A template may write `again` bytes of it twice
    as long."""
    size, wide = sum(map(len, pieces)) + again, 0
    for piece in pieces:
        if not piece.isascii():
            wide += len(piece) - len(piece.translate(None, _BEYOND_ASCII))
    return PromptBytes(size - wide, wide, texts)


def growth_of(capabilities: Collection[str]) -> int:
    """Return the tokens for each byte beyond ASCII that these capabilities allow at most."""
    if BYTE_TOKENS in capabilities:
        return 1
    return NFC_GROWTH if NFC_TOKENS in capabilities else GROWTH_MAX

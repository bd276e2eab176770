"""How many blanks an answer that is held to JSON may have between two of its tokens.

Unbounded, a small model at temperature 1 wrote blanks until `max_tokens` ended it. No blank at all
would forbid the `": "` that models are trained on, and what they say becomes nonsense.
"""

FORMAT_BLANKS_MAX = 16
"""Leaves room for JSON that is indented."""
CALL_BLANKS_MAX = 2

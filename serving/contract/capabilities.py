"""What engines declare that they can do, as far as more than their adapters must know of it.

An external server's deployment names these among its engine arguments; vLLM's adapter knows them.
What a byte of a prompt may be in tokens is declared too: see `prompt.py`.
"""

CACHE_SALT = "cache_salt"
"""Prefixes are cached by organization."""
NO_PREFIX_CACHE = "no_prefix_cache"
"""No prefix is cached at all."""
ISOLATING = frozenset({CACHE_SALT, NO_PREFIX_CACHE})
"""One of these has an engine that several organizations may share: else one could learn from the
time to the first token what another has asked."""

STRUCTURAL_TAG = "structural_tag"
"""Answers are held to formats in xgrammar's words, which bound their blanks."""

FEATURES = ("tools", "json_schema", "logprobs", "dimensions")
"""What a request may ask for beyond text, or beyond vectors as long as they are. One that needs a
feature which no engine of its model has is refused: left out in silence, the answer would be
another than was asked for."""

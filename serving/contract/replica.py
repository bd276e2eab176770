"""What fleets state of their replicas, and the capabilities that engines declare.

The deployment of an external server names its capabilities among its engine arguments; vLLM's
adapter knows them. What a byte of a prompt may be in tokens is declared too: see `prompt.py`."""

from typing import Literal

import msgspec

from serving.contract import SCHEMA
from serving.contract.text_guard import TextGuard
from serving.contract.units import At, Count, Digest, Id, Name, Seconds, Tokens

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


State = Literal["pending", "loading", "canary", "ready", "draining", "stopped", "failed", "asleep"]
"""pending → loading → canary → ready → draining → stopped; failed from any. Only `ready` gets
new work, `draining` finishes what it has, and is `ready` again where a deployment is woken in the
middle. `asleep` stands for all replicas of a deployment that sleeps: nothing runs, and demand is
what starts them."""


class ReplicaRecord(msgspec.Struct, frozen=True):
    """Where a replica listens and whether it may be given work.

    The probe tokens are what the fleet's own test generations used, over the replica's life:
    the engine counted them, no usage event did. They are up to date in snapshots only.
    `text_guard` says what keeps text from becoming control tokens, None where that is not known.
    `load_seconds` is how long the deployment's last replica took until it was ready, if known;
    `template_tokens` is how many tokens its chat template adds to the bytes that it is told, at
    most: None where nobody measured it. `kv_capacity_tokens` is how many tokens its engine's KV
    cache holds; None where the engine does not say, and then nothing is bounded by it.
    `weights_digest` is that of the folder it was started from, None where the fleet saw none.
    `token` is what its node wants to be shown, sealed for the gateway that reads the feed
    (`replica_token.py`); empty for an engine without a node, and where others read it.
    """

    replica_id: Id
    deployment_id: Id
    url: Name
    state: State
    slots: Count
    started_at: At
    engine: Name
    capabilities: tuple[Name, ...] = ()
    progress: str = ""
    reason: str = ""
    probe_input_tokens: Tokens = 0
    probe_output_tokens: Tokens = 0
    load_seconds: Seconds | None = None
    text_guard: TextGuard | None = None
    template_tokens: Tokens | None = None
    kv_capacity_tokens: Tokens | None = None
    weights_digest: Digest | None = None
    token: str = ""
    schema: int = SCHEMA

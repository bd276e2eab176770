"""A gateway's heartbeat, `POST /internal/v1/gateways/heartbeat`, and the number of gateways that it
returns."""

import msgspec

from serving.contract.units import Id

BEAT_SECONDS = 5.0
"""How often a gateway says so."""
MISSED_SECONDS = 16.0
"""After how long without a word it counts no more: three beats and a little."""


class Presence(msgspec.Struct, frozen=True):
    """A gateway lives, or leaves in order."""

    gateway_id: Id
    is_leaving: bool = False

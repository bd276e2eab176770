"""JSON whose decimals are exact numbers: money on the wire is neither a float nor a string."""

from collections.abc import Mapping
from typing import Any

import msgspec
from rest_framework.renderers import BaseRenderer

_encoder = msgspec.json.Encoder(decimal_format="number")


class ExactRenderer(BaseRenderer):
    """Writes Decimal as the digits it holds."""

    media_type = "application/json"
    format = "json"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return the data as JSON bytes."""
        return _encoder.encode(data)

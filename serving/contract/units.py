"""The bounded types that contract records are made of."""

from datetime import datetime
from typing import Annotated, Literal, get_args

from msgspec import Meta

INT64_MAX = 2**63 - 1

Id = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.:-]+\Z")]
Label = Annotated[str, Meta(min_length=1, max_length=64)]
"""An id as usage events and changes name it. Its characters are those of `Id`; who reads thousands
checks them over a whole event at once, or in the change's record, since a pattern for each id costs
more than decoding."""
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Nanos = Annotated[int, Meta(ge=0, le=INT64_MAX)]
"""Nano-dollars: 10^-9 USD."""
NanosPerMillionTokens = Annotated[int, Meta(ge=0, le=10**15)]
Tokens = Annotated[int, Meta(ge=0, le=10**9)]
Count = Annotated[int, Meta(ge=0, le=10**9)]
Limit = Annotated[int, Meta(ge=1, le=10**9)]
"""Of a rate; what may not be done at all is no matter of rates."""
Version = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Lineage = Annotated[str, Meta(max_length=64)]
"""Which database, or which run of a fleet, speaks: another one's versions mean nothing."""
Cursor = Annotated[str, Meta(max_length=250)]
"""Where the next page of a snapshot begins: a publisher's own words, which readers give back."""
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""SHA-256 or HMAC-SHA-256 in hexadecimal digits."""
Seconds = Annotated[float, Meta(ge=0.0, le=10.0**7)]
"""A duration. Durations may be floats; money never is."""
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
"""A part of a whole."""
At = Annotated[datetime, Meta(tz=True)]
"""An aware moment in UTC."""
Tier = Literal["priority", "default", "flex", "batch"]
"""How urgent a request is, in OpenAI's words."""
TIERS: tuple[Tier, ...] = get_args(Tier)
"""The most urgent first."""
WrittenTier = Literal["priority", "default", "flex", "batch", "standard"]
WRITTEN_TIER: dict[str, Tier] = {"standard": "default"}
"""What older processes call a tier: records take it in and never say it themselves."""

"""Grammars, compiled ahead: the gateway asks the fleet before an engine would have to.

`POST /grammars` on the fleet. An engine compiles what an answer must hold to; some schemas of a few
kilobytes take it minutes. The fleet compiles them first, where that harms nobody.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from serving.contract import SCHEMA
from serving.contract.units import Count, Id

SCHEMAS_MAX = 256
SCHEMAS_BYTES_MAX = 256 * 1024
"""Of all schemas of one request."""

Verdict = Literal["good", "refused", "too_complex", "busy", "unknown", "unchecked"]
"""`refused`: the engine would not take it; `too_complex`: it takes too long, or too much memory;
`busy`: the organization has too many grammars waiting; `unknown`: nobody can tell now, so that no
engine is given it; `unchecked`: the engine compiles in a way of its own, and looks after itself."""


class GrammarQuestion(msgspec.Struct, frozen=True):
    """JSON Schemas, as text, that the engine of a deployment would compile for a request."""

    organization_id: Id
    deployment_id: Id
    schemas: Annotated[tuple[str, ...], Meta(min_length=1, max_length=SCHEMAS_MAX)]
    schema: int = SCHEMA


class GrammarVerdict(msgspec.Struct, frozen=True):
    """What came of them; `place` is that of the first which is not good."""

    verdict: Verdict
    place: Count = 0


FORMAT_BLANKS_MAX = 16
"""Leaves room for JSON that is indented."""
CALL_BLANKS_MAX = 2

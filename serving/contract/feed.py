"""The change feed and the replica feed: numbered changes, or a snapshot of all there is.

`GET /internal/v1/feed?after=V&lineage=L` on control, `GET /replicas?after=V&lineage=L` on the
fleet; both wait up to 25 s for news. A change whose record is null deletes; a snapshot replaces
everything.

Control knows three more parameters. `kinds=a,b` asks for changes of these kinds alone. `limit=N`
asks for a snapshot in pages of N changes at most: while there are more, a page tells a `cursor`,
and `cursor=C` in place of what it was given for asks for the next. All pages of a snapshot tell
the same state, that of its version; a cursor that control can no longer go on from is answered by
410, and the reader begins again.

Versions count within one `lineage`: that of a database until it is restored from a backup, or of
a fleet from its start to its end. A reader of another lineage gets a snapshot; one that names none
is of before lineages, and is taken at its version.
"""

from typing import Literal

import msgspec

from serving.contract import records
from serving.contract.units import Cursor, Label, Lineage, Version

Kind = Literal[
    "limit_tier",
    "organization",
    "project",
    "api_key",
    "model",
    "deployment",
    "price",
    "contract_price",
    "fleet_size",
    "replica",
]

RECORD_OF_KIND: dict[str, type[msgspec.Struct]] = {
    "limit_tier": records.UsageTierRecord,
    "organization": records.OrganizationRecord,
    "project": records.ProjectRecord,
    "api_key": records.ApiKeyRecord,
    "model": records.ModelRecord,
    "deployment": records.DeploymentRecord,
    "price": records.PriceRecord,
    "contract_price": records.ContractPriceRecord,
    "fleet_size": records.GatewayCountRecord,
}
"""The kinds control publishes. A reader ignores, and counts, kinds it does not know."""


DELETED = msgspec.Raw(b"null")
"""The record of a change that deletes."""


class FeedChange(msgspec.Struct, frozen=True, gc=False):
    """One numbered change; `record` stays raw so that one bad record spoils no neighbour.

    A deletion's record is `DELETED`: msgspec cannot decode `Raw | None`.
    """

    version: Version
    kind: str
    id: Label
    record: msgspec.Raw

    @property
    def is_deletion(self) -> bool:
        """Whether the record is null: the id is no more."""
        return self.record == DELETED


class FeedPage(msgspec.Struct, frozen=True):
    """An answer of a feed: everything up to `version` that came after the version asked for.

    `lineage` is empty where a publisher, or a state on disk, is of before lineages; `cursor` is
    empty where this is all of a snapshot, or the last of its pages.
    """

    version: Version
    snapshot: bool
    changes: tuple[FeedChange, ...]
    lineage: Lineage = ""
    cursor: Cursor = ""

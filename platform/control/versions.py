"""The version of something that is edited: a short digest of each of its fields.

A form or a response carries the version that it was made from, and an edit sends it back. So an
edit that was begun before another one was saved is noticed, and it can be said which fields changed
in between. Versions are computed from the values; nothing is stored.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.db import connection

from control.errors import Conflict

DIGEST_CHARACTERS = 12


class StaleVersion(Conflict):
    """An edit was made from an earlier version than the present one, `version`; `changed` holds the
    present values of the fields that differ."""

    code = "stale_version"

    def __init__(self, changed: Mapping[str, Any], version: str) -> None:
        names = ", ".join(changed)
        super().__init__(
            f"This was changed after you read it: {names}. Nothing was saved. Look at the values in"
            " `metadata.changed`, then send the change with the `ETag` of this response.",
            param=next(iter(changed), None),
        )
        self.metadata = {"changed": dict(changed)}
        self.version = version


def version_of(values: Mapping[str, Any]) -> str:
    """Return the version of some values, such as `name:1f0c…;url:9ab4…`."""
    return ";".join(f"{name}:{digest(value)}" for name, value in values.items())


def digests_of(version: str) -> dict[str, str]:
    """Return the digests that a version consists of, by field; of any other text none."""
    pairs = (each.partition(":") for each in version.split(";"))
    return {name: value for name, colon, value in pairs if colon}


def changed_fields(version: str, values: Mapping[str, Any]) -> list[str]:
    """Return the fields whose values are not those that the version was made from."""
    digests = digests_of(version)
    return [name for name, value in values.items() if digests.get(name) != digest(value)]


def digest(value: Any) -> str:
    """Return the digest of a JSON value."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]


def edits_owner(row: Any) -> Any:
    """Return the id that `lock_edits` takes for an edit of a row: the row's `edits_owner_id` if it
    has one, else its organization's id, else its own. URLs of the API have the same id."""
    owner_id = getattr(row, "edits_owner_id", None) or getattr(row, "organization_id", None)
    return owner_id or row.pk


def lock_edits(owner_id: object) -> None:
    """Let no other edit of what belongs to an organization, or of one row of the catalog or of the
    price books, be checked before this transaction ends: of two that were made from the same
    version, one is saved.

    It is an advisory lock, because some of what is edited has no row before its first edit.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"edits of {owner_id}"]
        )

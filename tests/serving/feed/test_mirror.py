"""Records come out of a table as they went in, and a snapshot leaves only what it told."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec import UNSET

from serving.contract.records import (
    ApiKeyRecord,
    OrganizationRecord,
    PreviousSecretRecord,
    ProjectRecord,
    RateLimitSettings,
)
from serving.feed.changes import ChangeBatch, RecordChange, RejectedChange
from serving.feed.mirror import FeedMirror, FeedTable, RecordTable
from serving.feed.packed_table import PackedTable, RecordPacker
from serving.gateway.auth import ApiKeyTable
from tests.fixtures import catalog

A = catalog.tenant("a")
FULL_KEY = msgspec.structs.replace(
    A.key,
    budget_ids=("limit:key_a", "limit:key_a:day"),
    scopes=("inference", "admin"),
    models=("demo", "münchen"),
    networks=(),
    expires_at=catalog.START + timedelta(microseconds=123_456),
    limits=RateLimitSettings(requests_per_minute=3, concurrent_requests=1),
)
EVERY_RECORD = [
    A.organization, A.project, A.key, FULL_KEY, catalog.model(), catalog.deployment(),
    catalog.price(), catalog.contract_price(ends_at=catalog.START),
]  # fmt: skip


@pytest.mark.parametrize("record", EVERY_RECORD, ids=lambda record: type(record).__name__)
def test_a_packed_record_is_the_record(record: msgspec.Struct) -> None:
    # Of a key's old secrets nothing is packed: each is filed as a key of its own.
    left_out = {"old_secrets": UNSET} if isinstance(record, ApiKeyRecord) else {}
    packing = RecordPacker(type(record), *left_out)
    again = packing.unpack(packing.pack(record), **left_out)
    assert again == record
    assert type(again) is type(record)


def test_a_key_is_packed_into_about_a_hundred_bytes() -> None:
    ids = {"key_id": "key_" + 24 * "k", "organization_id": "org_" + 24 * "o"}
    key = msgspec.structs.replace(A.key, project_id="proj_" + 24 * "p", **ids)
    assert len(RecordPacker(type(key), "digest", "old_secrets").pack(key)) < 120


def heard() -> tuple[list[tuple], object]:
    calls: list[tuple] = []
    return calls, lambda *change: calls.append(change)


def organization(number: int, status: str = "active") -> OrganizationRecord:
    return OrganizationRecord(f"org_{number}", status, (), "salt")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["packed", "plain"])
def test_a_table_tells_of_each_change_what_was_and_what_is(kind: str) -> None:
    calls, hear = heard()
    table = PackedTable(OrganizationRecord, hear) if kind == "packed" else RecordTable(hear)
    first, second = organization(1), organization(1, "suspended")
    for record in (first, second, None, None):
        table.put("org_1", record)
    assert calls == [(None, first), (first, second), (second, None), (None, None)]
    assert table.get("org_1") is None


def tables() -> list[FeedTable]:
    packed = PackedTable(OrganizationRecord, lambda before, after: None)
    return [packed, RecordTable[OrganizationRecord]()]


@pytest.mark.parametrize("table", tables(), ids=["packed", "plain"])
def test_a_snapshot_leaves_what_it_told_and_what_it_rejected(table: FeedTable) -> None:
    mirror = FeedMirror({"organization": table})
    told = [RecordChange("organization", f"org_{n}", organization(n)) for n in range(6)]
    mirror.apply(ChangeBatch(1, True, tuple(told)))
    rejected = (
        RejectedChange("organization", "org_3", "bad"),
        RejectedChange("weather", "today", "bad"),
    )
    mirror.apply(ChangeBatch(2, True, tuple(told[:2]), rejected, is_last=False))
    assert [table.get(f"org_{n}") is not None for n in range(6)] == [True] * 6
    assert mirror.version == 1
    mirror.apply(ChangeBatch(2, True, tuple(told[5:]), is_first=False))
    found = [n for n in range(6) if table.get(f"org_{n}")]
    assert (found, mirror.version) == ([0, 1, 3, 5], 2)


def test_kinds_without_a_table_are_left_aside() -> None:
    mirror = FeedMirror({})
    mirror.apply(
        ChangeBatch(3, False, (RecordChange("project", "proj_a", A.project),), lineage="one")
    )
    assert (mirror.version, mirror.lineage) == (3, "one")


def key(name: str, digest: str) -> object:
    return msgspec.structs.replace(A.key, key_id=f"key_{name}", digest=digest * 64)


def test_a_key_is_found_by_its_last_digest_alone() -> None:
    keys = ApiKeyTable(lambda digest: None)
    keys.put("key_a", key("a", "1"))
    keys.put("key_a", key("a", "2"))
    assert keys.find("1" * 64) is None
    assert keys.find("2" * 64) == key("a", "2")
    keys.put("key_a", None)
    assert keys.find("2" * 64) is None
    assert len(keys) == 0


def test_a_digest_that_passed_to_another_key_outlives_the_first() -> None:
    keys = ApiKeyTable(lambda digest: None)
    keys.put("key_a", key("a", "1"))
    keys.put("key_b", key("b", "1"))
    keys.put("key_a", None)
    assert keys.find("1" * 64) == key("b", "1")


def test_whoever_remembers_a_key_hears_before_it_changes() -> None:
    calls, hear = heard()
    keys = ApiKeyTable(hear)
    keys.put("key_a", key("a", "1"))
    keys.put("key_a", key("a", "2"))
    keys.put("key_a", None)
    assert calls == [("1" * 64,), ("1" * 64,), ("2" * 64,), ("2" * 64,)]


def test_keys_that_a_snapshot_does_not_tell_are_gone() -> None:
    keys = ApiKeyTable(lambda digest: None)
    for name, digest in (("a", "1"), ("b", "2"), ("c", "3")):
        keys.put(f"key_{name}", key(name, digest))
    keys.begin_snapshot()
    keys.put("key_a", key("a", "4"))
    keys.retain("key_b")
    keys.retain("key_unknown")
    for _ in keys.remove_stale():
        pass
    known = [digest for digest in "1234" if keys.find(digest * 64)]
    assert (known, len(keys)) == (["2", "4"], 2)


END = datetime(2026, 6, 1, tzinfo=UTC)


def rotated(*old: str, **fields: object) -> ApiKeyRecord:
    secrets = tuple(PreviousSecretRecord(digest * 64, END) for digest in old)
    return msgspec.structs.replace(key("a", "9"), old_secrets=secrets, **fields)


def test_an_old_secret_opens_its_key_until_it_ends() -> None:
    keys = ApiKeyTable(lambda digest: None)
    keys.put("key_a", key("a", "1"))
    keys.put("key_a", rotated("1", "2"))
    known = [keys.find(digest * 64) for digest in "129"]
    assert [found and found.key_id for found in known] == ["key_a"] * 3
    assert [found and found.expires_at for found in known] == [END, END, None]
    earlier = END - timedelta(days=1)
    keys.put("key_a", rotated("1", "2", expires_at=earlier))
    known = [keys.find(digest * 64) for digest in "19"]
    assert [found and found.expires_at for found in known] == [earlier, earlier]


def test_old_secrets_go_when_they_are_told_no_more() -> None:
    calls, hear = heard()
    keys = ApiKeyTable(hear)
    keys.put("key_a", rotated("1", "2"))
    keys.put("key_a", rotated("2"))
    assert [bool(keys.find(digest * 64)) for digest in "129"] == [False, True, True]
    assert ("1" * 64,) in calls[3:]
    keys.begin_snapshot()
    keys.retain("key_a")
    for _ in keys.remove_stale():
        pass
    assert [bool(keys.find(digest * 64)) for digest in "29"] == [True, True]
    keys.put("key_a", None)
    assert not any(keys.find(digest * 64) for digest in "129")
    assert len(keys) == 0


def test_ids_of_projects_and_others_are_told_apart() -> None:
    projects = PackedTable(ProjectRecord, lambda before, after: None)
    for name in ("proj_a", "proj_aa", "proj_A"):
        projects.put(name, ProjectRecord(name, "org_a", ()))
    assert [projects.get(name).project_id for name in ("proj_a", "proj_aa", "proj_A")] == [
        "proj_a", "proj_aa", "proj_A",
    ]  # fmt: skip

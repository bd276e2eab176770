"""What a large control plane has published: for each organization a project and ten keys."""

import hashlib
from collections.abc import Iterator

import msgspec
import psycopg

from serving.contract import records
from serving.contract.budget import balance_budget_id
from serving.contract.codec import encode

KEYS_EACH = 10
COPY = "COPY feed_published_change (kind, record_id, record, created_at) FROM STDIN"


def _name(prefix: str, number: int) -> str:
    """Return an id as control makes them: 24 letters that say nothing."""
    return f"{prefix}_{hashlib.md5(f'{prefix}{number}'.encode()).hexdigest()[:24]}"  # noqa: S324


def digest_of(number: int) -> str:
    """Return the digest of a key."""
    return hashlib.sha256(str(number).encode()).hexdigest()


def organization_of(number: int) -> records.OrganizationRecord:
    """Return the organization of a key."""
    name = _name("org", number // KEYS_EACH)
    salt = _name("salt", number // KEYS_EACH)
    return records.OrganizationRecord(name, "active", (balance_budget_id(name),), salt)


def project_of(number: int) -> records.ProjectRecord:
    """Return the project of a key."""
    name = _name("proj", number // KEYS_EACH)
    return records.ProjectRecord(name, _name("org", number // KEYS_EACH), ())


def key_of(number: int) -> records.ApiKeyRecord:
    """Return a key."""
    organization, project = (_name(kind, number // KEYS_EACH) for kind in ("org", "proj"))
    key_id = _name("key", number)
    return records.ApiKeyRecord(key_id, digest_of(number), organization, project, ())


def publish(url: str, keys: int) -> int:
    """Write all of it into a database, and return how many records."""
    with psycopg.connect(url) as connection:
        with connection.cursor().copy(COPY) as copy:
            for kind, id_, record in _told(keys):
                copy.write_row((kind, id_, encode(record).decode(), "2026-01-01T00:00:00Z"))
        connection.execute("ANALYZE feed_published_change")
        found = connection.execute("SELECT count(*) FROM feed_published_change").fetchone()
    return int(found[0]) if found else 0


def _told(keys: int) -> Iterator[tuple[str, str, msgspec.Struct]]:
    for number in range(0, keys, KEYS_EACH):
        organization, project = organization_of(number), project_of(number)
        yield "organization", organization.organization_id, organization
        yield "project", project.project_id, project
        for each in range(number, min(number + KEYS_EACH, keys)):
            key = key_of(each)
            yield "api_key", key.key_id, key

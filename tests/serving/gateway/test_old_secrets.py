"""A key whose secret is being replaced, and peppers that change: what the gateway lets in, and for
how long."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from serving.contract.api_key import digest
from serving.contract.records import PreviousSecretRecord
from serving.feed.changes import ChangeBatch, RecordChange
from serving.gateway.directory import Directory
from serving.gateway.errors import Unauthorized
from tests.fixtures import catalog

pytestmark = pytest.mark.unit
A, OTHER = catalog.tenant("a"), catalog.tenant("other")
OLD, NEW = catalog.PEPPER.encode(), b"the next pepper, 0123456789"
NOW = datetime(2026, 6, 1, tzinfo=UTC)
FIRST, SECOND = A.secret, OTHER.secret


def directory(*, ends_at: datetime | None = None, pepper: bytes = OLD) -> Directory:
    """Return what a gateway knows of a key that has the second secret, and had the first."""
    key = msgspec.structs.replace(A.key, digest=digest(SECOND, pepper))
    if ends_at is not None:
        old = (PreviousSecretRecord(digest(FIRST, OLD), ends_at),)
        key = msgspec.structs.replace(key, old_secrets=old)
    found = Directory("salt-secret")
    records = (("organization", "org_a", A.organization), ("project", "proj_a", A.project))
    told = (*records, ("api_key", "key_a", key))
    found.apply(ChangeBatch(1, True, tuple(RecordChange(*each) for each in told)))
    return found


def opens(
    known: Directory, secret: str, *, now: datetime = NOW, peppers: tuple[bytes, ...] = (OLD,)
) -> bool:
    known.authenticator._peppers = list(peppers)
    try:
        principal = known.authenticator.authenticate(f"Bearer {secret}", lambda: None, lambda: now)
    except Unauthorized:
        return False
    return principal.key.key_id == "key_a"


def test_both_secrets_open_until_the_old_one_ends_on_the_second() -> None:
    known = directory(ends_at=NOW + timedelta(seconds=1))
    assert (opens(known, FIRST), opens(known, SECOND)) == (True, True)
    after = NOW + timedelta(seconds=1)
    assert (opens(known, FIRST, now=after), opens(known, SECOND, now=after)) == (False, True)


def test_an_old_secret_that_is_told_no_more_opens_nothing() -> None:
    known = directory(ends_at=NOW + timedelta(days=1))
    assert opens(known, FIRST)
    key = msgspec.structs.replace(A.key, digest=digest(SECOND, OLD))
    known.apply(ChangeBatch(2, False, (RecordChange("api_key", "key_a", key),)))
    assert (opens(known, FIRST), opens(known, SECOND)) == (False, True)


def test_every_pepper_verifies_whichever_made_the_digest() -> None:
    of_old, of_new = directory(pepper=OLD), directory(pepper=NEW)
    both = (NEW, OLD)
    assert opens(of_old, SECOND, peppers=both)
    assert opens(of_new, SECOND, peppers=both)
    assert not opens(of_old, SECOND, peppers=(NEW,))
    assert not opens(of_new, FIRST, peppers=both)

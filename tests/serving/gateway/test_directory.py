"""What the gateway knows follows every change, in any order of arrival."""

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.records import OrganizationRecord, ProjectRecord
from serving.feed.changes import ChangeBatch, RecordChange
from serving.gateway.directory import Directory
from tests.fixtures import catalog

A, B = catalog.tenant("a"), catalog.tenant("b")
RECORDS = [
    ("organization", "org_a", A.organization),
    ("project", "proj_a", A.project),
    ("api_key", "key_a", A.key),
    ("organization", "org_b", B.organization),
    ("project", "proj_b", B.project),
    ("api_key", "key_b", B.key),
]
OTHER_DIGEST = catalog.digest("x", b"y")
SUSPENDED = OrganizationRecord("org_a", "suspended", (), "salt_a")
ARCHIVED = ProjectRecord("proj_a", "org_a", (), status="archived")
CHANGES = st.sampled_from(
    [
        *RECORDS,
        ("organization", "org_a", SUSPENDED),
        ("project", "proj_a", ARCHIVED),
        ("api_key", "key_a", None),
        ("organization", "org_a", None),
        ("project", "proj_a", None),
        ("api_key", "key_a", msgspec.structs.replace(A.key, digest=OTHER_DIGEST)),
    ]
)


def batch(*changes: tuple, snapshot: bool = False) -> ChangeBatch:
    return ChangeBatch(1, snapshot, tuple(RecordChange(*change) for change in changes))


@given(st.lists(CHANGES, max_size=20))
def test_change_by_change_and_all_at_once_end_in_the_same_principals(changes: list) -> None:
    stepwise, at_once = Directory("salt-secret"), Directory("salt-secret")
    last = {}
    for change in changes:
        stepwise.apply(batch(change))
        last[change[:2]] = change
    at_once.apply(batch(*(c for c in last.values() if c[2] is not None), snapshot=True))
    for digest in (A.key.digest, B.key.digest, OTHER_DIGEST):
        assert stepwise.principal(digest) == at_once.principal(digest)


def test_a_pool_goes_by_what_its_deployment_says_of_its_slots() -> None:
    directory = Directory("salt-secret")
    first = catalog.deployment("var_demo")
    directory.apply(batch(("deployment", first.deployment_id, first)))
    pool = directory.pools[first.deployment_id]
    assert (pool.reserved_share, pool.wake_seconds) == (first.reserved_share, 0.0)
    waking = msgspec.structs.replace(first.timeouts, wake_seconds=40.0)
    changed = msgspec.structs.replace(first, reserved_share=0.5, timeouts=waking)
    directory.apply(batch(("deployment", first.deployment_id, changed)))
    assert directory.pools[first.deployment_id] is pool
    assert (pool.reserved_share, pool.wake_seconds) == (0.5, 40.0)


def test_organizations_have_salts_of_their_own_that_survive_a_restart() -> None:
    salts = []
    for _ in range(2):
        directory = Directory("salt-secret")
        directory.apply(batch(*RECORDS))
        for key in (A.key, B.key):
            principal = directory.principal(key.digest)
            assert principal is not None
            salts.append(principal.cache_salt)
    assert salts[0] != salts[1]
    assert salts[:2] == salts[2:]


def test_the_price_in_force_is_the_newest_that_has_begun() -> None:
    directory, start = Directory("s"), datetime(2026, 3, 1, tzinfo=UTC)
    prices = [
        msgspec.structs.replace(
            catalog.price(), price_id=f"p{n}", effective_at=start + timedelta(days=n)
        )
        for n in (2, 0, 1)
    ]
    directory.apply(batch(*(("price", price.price_id, price) for price in prices)))
    moments = [start + timedelta(days=d) for d in (-1, 0, 1.5, 9)]
    found = [directory.schedule("var_demo", "org_a", moment) for moment in moments]
    assert [bands and bands[0].price_id for bands in found] == [None, "p0", "p1", "p2"]


def test_a_contract_price_is_its_organizations_and_a_cancelled_one_is_gone() -> None:
    directory, at = Directory("s"), catalog.START
    own = catalog.contract_price("org_a")
    directory.apply(
        batch(("price", "price_var_demo", catalog.price()), ("contract_price", own.price_id, own))
    )
    assert directory.schedule("var_demo", "org_a", at) == (own,)
    assert directory.schedule("var_demo", "org_b", at) == (catalog.price(),)
    directory.apply(batch(("contract_price", own.price_id, None)))
    assert directory.schedule("var_demo", "org_a", at) == (catalog.price(),)


def test_a_dedicated_deployment_serves_its_organization_first_and_nobody_else() -> None:
    directory = Directory("s")
    own = catalog.deployment(dedicated_to="org_a")
    shared = msgspec.structs.replace(catalog.deployment(), deployment_id="dep_shared")
    both = (("deployment", "dep_var_demo", own), ("deployment", "dep_shared", shared))
    directory.apply(batch(*both))
    assert directory.deployments("var_demo", A.organization) == [own, shared]
    assert directory.deployments("var_demo", B.organization) == [shared]

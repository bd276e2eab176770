"""Every section of the console, tried by each role, by an outsider and by nobody."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection, transaction
from django.http import HttpResponseBase
from django.shortcuts import resolve_url
from django.test import Client
from django.test.utils import CaptureQueriesContext

from control.permissions import Role
from tests.fixtures.amounts import amounts_in
from tests.fixtures.second_factor import let_time_pass
from tests.fixtures.shared_organization import SharedOrganization
from tests.web.sections import (
    FORMS,
    LACK_MORE,
    MAY_CHANGE,
    MAY_LOOK,
    MONEY,
    NEED_RECENT_PROOF,
    OF_NO_ORGANIZATION,
    PARAMETERS,
    PRICES,
    TELL_MONEY,
    address_of,
)
from web.console.base import FOR_SOME, SECTIONS

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
ROLES = [str(role) for role in Role]
DONE = {200, 201, 302}
WRITES = ("INSERT", "UPDATE", "DELETE")


@dataclass
class Attempt:
    """How a request was answered, and what it wrote."""

    reply: HttpResponseBase
    writes: list[str]

    @property
    def status(self) -> int:
        return self.reply.status_code


def attempt(
    shared: SharedOrganization,
    who: str,
    method: str,
    name: str,
    query: str = "",
    **other_ids: str,
) -> Attempt:
    """Send one request, and undo what it does."""
    ids = shared.ids | other_ids
    url = address_of(name, ids) + query
    browser = shared.browsers[who]
    with undone(), CaptureQueriesContext(connection) as queries:
        reply = browser.get(url) if method == "get" else browser.post(url, **body(name, ids))
        if reply.streaming and not reply.is_async:
            # A download counts as under way until its end.
            reply.streaming_content = list(reply)
    sent = [each["sql"] for each in queries]
    return Attempt(reply, [each for each in sent if each.startswith(WRITES)])


def body(name: str, ids: dict[str, str]) -> dict[str, Any]:
    """Return what is sent to a form."""
    fields = FORMS.get(name, {})
    form = {
        key: value.format(**ids) if isinstance(value, str) else value
        for key, value in fields.items()
    }
    if name == "playground_stream":
        return {"data": form, "content_type": "application/json"}
    return {"data": form}


@contextmanager
def undone() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def test_every_section_is_listed() -> None:
    assert set(PARAMETERS) == MAY_LOOK.keys() | MAY_CHANGE.keys() | OF_NO_ORGANIZATION


@pytest.mark.parametrize("name", MAY_LOOK)
def test_who_may_look(shared: SharedOrganization, name: str) -> None:
    statuses = {who: attempt(shared, who, "get", name).status for who in ROLES}
    is_redirect = name in ("key_secret", "billing_saved")
    shown = 302 if is_redirect else 200
    assert statuses == {who: shown if who in MAY_LOOK[name] else 403 for who in ROLES}
    assert_closed_to_outsiders(shared, "get", name)


@pytest.mark.parametrize("name", MAY_CHANGE)
def test_who_may_change(shared: SharedOrganization, name: str) -> None:
    for who in ROLES:
        tried = attempt(shared, who, "post", name)
        if who not in MAY_CHANGE[name]:
            assert tried.status in (400, 403), who  # a refused form is shown again
            assert tried.writes == [], who
        elif name in LACK_MORE:
            assert tried.status == 400, who
        else:
            assert tried.status in DONE, who
    assert_closed_to_outsiders(shared, "post", name)
    if name not in MAY_LOOK:
        assert attempt(shared, "owner", "get", name).status == 405


def test_what_needs_a_recent_proof(shared: SharedOrganization) -> None:
    stale = Client()
    stale.force_login(shared.org.owner)
    let_time_pass(stale, 16 * 60)
    shared.browsers["stale"] = stale
    for name in MAY_CHANGE:
        tried = attempt(shared, "stale", "post", name)
        where = tried.reply.headers.get("location", "")
        assert where.startswith("/accounts/reauthenticate/") == (name in NEED_RECENT_PROOF), name
        if name in NEED_RECENT_PROOF:
            assert [each for each in tried.writes if "session" not in each] == [], name
    for name in MAY_LOOK:
        where = attempt(shared, "stale", "get", name).reply.headers.get("location", "")
        assert not where.startswith("/accounts/"), name


def assert_closed_to_outsiders(shared: SharedOrganization, method: str, name: str) -> None:
    """Outsiders find nothing, at home neither; who is not signed in is asked to."""
    outside = attempt(shared, "outsider", method, name)
    assert (outside.status, outside.writes) == (404, [])
    if len(PARAMETERS[name]) > 1:
        home = attempt(shared, "outsider", method, name, organization_id=shared.outsider.id)
        assert home.status == 404
        assert [each for each in home.writes if not each.startswith("INSERT")] == []
    signed_out = attempt(shared, "nobody", method, name)
    assert signed_out.writes == []
    if name == "playground_stream":
        assert signed_out.status == 401
    else:
        assert signed_out.status == 302
        assert signed_out.reply["location"].startswith("/accounts/login/?next=")


@pytest.mark.parametrize("name", sorted(MAY_LOOK.keys() - PRICES))
def test_who_sees_no_money_is_shown_none(shared: SharedOrganization, name: str) -> None:
    for who in set(ROLES) - MONEY:
        for query in ("", "?metric=cost"):
            told = amounts_in(attempt(shared, who, "get", name, query=query).reply)
            assert told == set(), f"{name}{query} tells {who}"


@pytest.mark.parametrize("name", TELL_MONEY)
def test_who_may_see_money_is_shown_it(shared: SharedOrganization, name: str) -> None:
    for who in MONEY & MAY_LOOK[name]:
        assert amounts_in(attempt(shared, who, "get", name).reply), who


@pytest.mark.parametrize("who", ROLES)
def test_the_rail_offers_what_a_role_may_look_at(shared: SharedOrganization, who: str) -> None:
    page = attempt(shared, who, "get", "overview").reply.content.decode()
    paths = {name: resolve_url(f"console:{name}", shared.org.id) for name in SECTIONS}
    offered = {name for name, path in paths.items() if f'href="{path}"' in page}
    assert offered == {name for name in SECTIONS if who in MAY_LOOK[name]}
    assert FOR_SOME.keys() == {name for name in SECTIONS if MAY_LOOK[name] != frozenset(Role)}

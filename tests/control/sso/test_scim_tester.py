"""`scim2-tester` finds nothing wrong, over HTTP."""

from typing import Annotated

import httpx2
import pytest
from pydantic import Field
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_models import Group, GroupMember, Required
from scim2_tester import Status, check_server
from scim2_tester.utils import ResourceManager

from control.sso.connections import create_scim_token
from control.sso.scim_resources import User
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.serving import serving

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.django_db(transaction=True)]
NOT_HERE = {"search_with_attributes"}
"""`POST /.search`, by which no provider that we know of asks."""
ADDRESSES = [f"p{number}@acme.example" for number in range(100_000)]


class Person(User):
    """A user whose name is an address of the organization's, as ours must be."""

    user_name: Annotated[str | None, Required.true] = Field(None, examples=ADDRESSES)
    active: Annotated[bool | None, Required.true] = None
    """Whoever is here is active or suspended: what is taken away of it stays as it was."""


class Member(GroupMember):
    """A member of a group, which are people here."""

    type: str | None = Field(None, examples=["User"])


class Team(Group):
    """A group of people."""

    members: list[Member] | None = None


@pytest.fixture
def tidy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tester, which otherwise deletes all that it ever made after each check anew."""
    clean_up = ResourceManager.cleanup

    def once(self: ResourceManager) -> None:
        clean_up(self)
        self.resources.clear()

    monkeypatch.setattr(ResourceManager, "cleanup", once)


def test_the_tester_finds_nothing_wrong(
    transactional_db: None, tidy: None, acme: SeededOrganization
) -> None:
    from control.asgi import application

    token = create_scim_token(actor=acme.actor, organization=acme.organization)
    with (
        serving(application) as address,
        httpx2.Client(
            base_url=f"{address}/scim/v2", headers={"authorization": f"Bearer {token}"}, timeout=30
        ) as http,
    ):
        client = SyncSCIMClient(http)
        client.discover()
        client.resource_models = (Person, Team)
        results = check_server(client)
    wrong = [
        each
        for each in results
        if each.status in (Status.ERROR, Status.CRITICAL) and each.title not in NOT_HERE
    ]
    assert not wrong, "\n".join(f"{each.title}: {each.reason}" for each in wrong)
    assert len(results) > 20

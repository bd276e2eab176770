"""Whom `require` lets pass, and what it says to others. Which role may do what: see
`test_access_matrix.py` here and in `tests/web`."""

import pytest

from control.errors import NotPermitted, ObjectNotFound
from control.permissions import Actor, Permission, Role, require
from tests.fixtures.organizations import SeededOrganization


def test_a_member_of_another_organization_finds_nothing(
    org: SeededOrganization, outsider: SeededOrganization
) -> None:
    with pytest.raises(ObjectNotFound):
        require(outsider.actor, org.organization.id, Permission.ORGANIZATION_READ)


def test_a_person_without_a_seat_finds_nothing(
    org: SeededOrganization, outsider: SeededOrganization
) -> None:
    with pytest.raises(ObjectNotFound):
        require(Actor.for_user(outsider.owner), org.organization.id, Permission.ORGANIZATION_READ)


def test_a_lesser_role_hears_what_it_lacks(org: SeededOrganization) -> None:
    viewer = org.actor_of(org.join(Role.VIEWER))
    with pytest.raises(NotPermitted, match="viewer lacks the permission api_keys:write"):
        require(viewer, org.organization.id, Permission.API_KEYS_WRITE)

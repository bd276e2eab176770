"""Whom `require` lets pass, and what it says to others. Which role may do what: see
`test_access_matrix.py` here and in `tests/web`."""

import pytest

from control.actor import person
from control.errors import NotPermitted, ObjectNotFound
from control.tenants.models import Role
from control.tenants.permissions import Action, require
from tests.fixtures.organizations import SeededOrganization


def test_a_member_of_another_organization_finds_nothing(
    org: SeededOrganization, outsider: SeededOrganization
) -> None:
    with pytest.raises(ObjectNotFound):
        require(outsider.actor, org.organization, Action.READ)


def test_a_person_without_a_seat_finds_nothing(
    org: SeededOrganization, outsider: SeededOrganization
) -> None:
    with pytest.raises(ObjectNotFound):
        require(person(outsider.owner), org.organization, Action.READ)


def test_a_lesser_role_is_told_so(org: SeededOrganization) -> None:
    viewer = org.actor_of(org.join(Role.VIEWER))
    with pytest.raises(NotPermitted, match="viewer may not make keys"):
        require(viewer, org.organization, Action.MAKE_KEYS)

"""What each role may do, spelled out once more."""

import pytest

from control.actor import person
from control.errors import NotFound, NotPermitted
from control.tenants.models import Role
from control.tenants.permissions import Action, can, require
from tests.fixtures.organizations import SeededOrganization

EVERYBODY = set(Role)
MATRIX = {
    Action.READ: EVERYBODY,
    Action.SEE_MONEY: {Role.OWNER, Role.ADMIN, Role.BILLING},
    Action.PAY: {Role.OWNER, Role.ADMIN, Role.BILLING},
    Action.SET_LIMITS: {Role.OWNER, Role.ADMIN, Role.BILLING},
    Action.EDIT_BILLING: {Role.OWNER, Role.ADMIN, Role.BILLING},
    Action.MAKE_KEYS: {Role.OWNER, Role.ADMIN, Role.DEVELOPER},
    Action.MAKE_MANAGE_KEYS: {Role.OWNER, Role.ADMIN},
    Action.MANAGE_PROJECTS: {Role.OWNER, Role.ADMIN},
    Action.MANAGE_MEMBERS: {Role.OWNER, Role.ADMIN},
    Action.MANAGE_OWNERS: {Role.OWNER},
    Action.MANAGE_WEBHOOKS: {Role.OWNER, Role.ADMIN},
    Action.KEEP_ANSWERS: {Role.OWNER, Role.ADMIN},
    Action.RENAME_ORGANIZATION: {Role.OWNER},
    Action.DELETE_ORGANIZATION: {Role.OWNER},
    Action.SEE_AUDIT: {Role.OWNER, Role.ADMIN},
}


def test_the_matrix_names_every_action() -> None:
    assert set(MATRIX) == set(Action)


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("role", list(Role))
def test_roles_may_what_the_matrix_says(role: Role, action: Action) -> None:
    assert can(role, action) is (role in MATRIX[action])


def test_a_member_of_another_organization_finds_nothing(
    org: SeededOrganization, outsider: SeededOrganization
) -> None:
    with pytest.raises(NotFound):
        require(outsider.actor, org.organization, Action.READ)


def test_a_person_without_a_seat_finds_nothing(
    org: SeededOrganization, outsider: SeededOrganization
) -> None:
    with pytest.raises(NotFound):
        require(person(outsider.owner), org.organization, Action.READ)


def test_a_lesser_role_is_told_so(org: SeededOrganization) -> None:
    viewer = org.actor_of(org.join(Role.VIEWER))
    with pytest.raises(NotPermitted, match="viewer may not make keys"):
        require(viewer, org.organization, Action.MAKE_KEYS)

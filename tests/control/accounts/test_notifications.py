"""What people are told by mail of what others did: to their seat, their role, their keys."""

import pytest
from django.core import mail

from control.accounts.models import User
from control.api_keys.models import Scope
from control.api_keys.services import create_api_key, revoke_key, rotate_key
from control.operators.services import change_operator_role, remove_operator
from control.organizations.members import change_role, remove_member
from control.permissions import Actor, OperatorRole, Role
from tests.fixtures.mails import delivered, html_of
from tests.fixtures.organizations import SeededOrganization, make_organization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture
def org(db: None) -> SeededOrganization:
    made = make_organization()
    made.organization.name = "Acme <b>&amp;"
    made.organization.save()
    return made


def told(*addresses: str) -> list[tuple[str, str]]:
    """Return the mails to these people, forgotten then, by address and subject."""
    found = [(each.to[0], each.subject) for each in delivered()]
    mail.outbox.clear()
    return [each for each in found if each[0] in addresses]


def test_another_role_is_told_to_who_has_it(org: SeededOrganization) -> None:
    member = org.join(Role.DEVELOPER)
    change_role(actor=org.actor, membership=org.seat(member), role=Role.VIEWER)
    [letter] = [
        each for each in delivered() if each.to == [member.email] and "role" in each.subject
    ]
    assert letter.subject == "Your role in Acme <b>&amp; changed"
    assert "Your role in Acme <b>&amp; is now viewer." in str(letter.body)
    assert org.owner.email in str(letter.body)
    assert "<b>" not in html_of(letter).split("</head>")[1].replace("<bdi>", "")


def test_the_end_of_a_seat_is_told_with_the_keys_that_ended(org: SeededOrganization) -> None:
    member = org.join(Role.DEVELOPER)
    create_api_key(actor=org.actor_of(member), project=org.project, name="Backend")
    told()
    remove_member(actor=org.actor, membership=org.seat(member))
    [letter] = delivered()
    subject = "You are no longer a member of Acme <b>&amp;"
    assert (letter.to, letter.subject) == ([member.email], subject)
    assert "1 API key that you created stopped working." in str(letter.body)


def test_operators_are_told_of_their_roles(db: None) -> None:
    root = Actor.for_user(User.objects.create_superuser("root@acme.example"))
    operator = User.objects.create_user("op@acme.example", operator_role=OperatorRole.VIEWER)
    change_operator_role(actor=root, user=operator, role=OperatorRole.FINANCE)
    remove_operator(actor=root, user=operator)
    assert told("op@acme.example") == [
        ("op@acme.example", "Your operator role changed"),
        ("op@acme.example", "You are no longer an operator"),
    ]


def test_who_makes_a_key_by_hand_hears_of_it(org: SeededOrganization) -> None:
    member = org.join(Role.DEVELOPER)
    told()
    key, secret = create_api_key(actor=org.actor_of(member), project=org.project, name="Backend")
    [letter] = delivered()
    assert (letter.to, letter.subject) == ([member.email], "A new API key")
    assert key.last_four in str(letter.body)
    assert secret not in str(letter.body) + html_of(letter)


def test_owners_hear_of_a_key_that_may_manage(org: SeededOrganization) -> None:
    admin = org.join(Role.ADMIN)
    told()
    actor = org.actor_of(admin)
    create_api_key(actor=actor, project=org.project, name="CI", scopes=[Scope.MANAGE])
    assert {each for each, _ in told(admin.email, org.owner.email)} == {
        admin.email,
        org.owner.email,
    }


def test_a_new_secret_is_told_as_a_new_key_is(org: SeededOrganization) -> None:
    maker, other = org.join(Role.DEVELOPER), org.join(Role.ADMIN)
    key, _ = create_api_key(actor=org.actor_of(maker), project=org.project, name="Backend")
    told()
    key, _ = rotate_key(actor=org.actor_of(other), key=key, last_four=key.last_four)
    subject = "An API key has a new secret"
    assert sorted(told(maker.email, other.email)) == sorted(
        [(maker.email, subject), (other.email, subject)]
    )
    key, _ = rotate_key(actor=org.actor_of(other), key=key, last_four=key.last_four)
    assert told(maker.email, other.email) == [(other.email, subject)]


def test_keys_that_programs_make_are_not_mailed(org: SeededOrganization) -> None:
    program = Actor(kind="key", id="key_x", name="CI", organization_id=org.id, role=Role.ADMIN)
    create_api_key(actor=program, project=org.project, name="Backend")
    assert delivered() == []


def test_who_made_a_key_hears_that_another_ended_it(org: SeededOrganization) -> None:
    member = org.join(Role.DEVELOPER)
    actor = org.actor_of(member)
    first, _ = create_api_key(actor=actor, project=org.project, name="First")
    second, _ = create_api_key(actor=actor, project=org.project, name="Second")
    told()
    revoke_key(actor=actor, key=first)
    revoke_key(actor=org.actor, key=second)
    assert told(member.email) == [(member.email, "Your API key was revoked")]

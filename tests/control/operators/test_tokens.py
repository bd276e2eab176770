"""Operator tokens: what they may be given, what they do later, and their page in the admin."""

import re
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.errors import Conflict, InvalidValue, NotPermitted
from control.operators.models import OperatorToken
from control.operators.services import (
    TOKEN_USE_INTERVAL,
    change_operator_role,
    create_operator_token,
    is_well_formed,
    make_secret,
    remove_operator,
    revoke_operator_token,
)
from control.permissions import Actor, Permission, require_operator
from tests.fixtures.mails import delivered
from tests.fixtures.operator_tokens import bearer_client, make_operator, make_token
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.second_factor import let_time_pass

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
LIST = "/admin/operators/operatortoken/"
MODELS = "/api/v1/admin/models"
NEW_MODEL = {"public_id": "owl", "name": "Owl"}


@pytest.fixture
def owner() -> User:
    return make_operator("owner")


def status(client: Client, method: str = "get") -> int:
    """Return how the list of models answers, or the creation of one."""
    if method == "get":
        return client.get(MODELS).status_code
    return client.post(MODELS, NEW_MODEL, content_type="application/json").status_code


def test_a_secret_has_a_checksum() -> None:
    secret = make_secret()
    assert is_well_formed(secret)
    wrong = secret[:-1] + ("0" if secret[-1] != "0" else "1")
    for other in (wrong, secret[:-1], f"{secret}0", secret.replace("pen_op_", "pen_live_"), ""):
        assert not is_well_formed(other)


def test_a_command_creates_the_first_token(owner: User) -> None:
    output = StringIO()
    options = {"name": "Setup", "permissions": ["platform:read"], "stdout": output}
    call_command("create_operator_token", owner.email, **options)
    client = bearer_client(output.getvalue().strip())
    assert (status(client), status(client, "post")) == (200, 403)
    with pytest.raises(CommandError, match=r"ada@nowhere\.example is no operator's address"):
        call_command("create_operator_token", "ada@nowhere.example", **options)


def test_a_secret_is_stored_by_its_digest_alone(owner: User) -> None:
    token, secret = make_token(owner)
    assert secret not in str(OperatorToken.objects.values().get())
    assert (secret.startswith(token.prefix), secret.endswith(token.last_four)) == (True, True)
    [event] = AuditEvent.objects.filter(action="operator_token.created")
    assert (event.actor_id, event.target_id) == (owner.id, token.id)
    assert secret not in str(event.details)
    [mail] = delivered()
    assert (mail.to, mail.subject) == ([owner.email], "An operator token was created")
    assert secret not in str(mail.body)


@pytest.mark.parametrize(
    ("permissions", "message"),
    [
        ([], "permissions is empty; wanted at least one."),
        (["platform:read", "root"], "permissions has 'root'; wanted some of platform:read, "),
        (["members:write"], "permissions has 'members:write'"),
    ],
)
def test_wrong_permissions_are_named(owner: User, permissions: list[str], message: str) -> None:
    with pytest.raises(InvalidValue, match=re.escape(message)):
        create_operator_token(actor=Actor.for_user(owner), name="x", permissions=permissions)


def test_a_token_expires_in_the_future(owner: User) -> None:
    with pytest.raises(InvalidValue, match="wanted a future time"):
        make_token(owner, expires_at=timezone.now())


def test_nobody_gives_a_token_more_than_their_role() -> None:
    with pytest.raises(NotPermitted, match="lacks the permission finance:write"):
        make_token(make_operator("catalog"), ["catalog:write", "finance:write"])


def test_tokens_and_the_platform_create_no_tokens(owner: User) -> None:
    token, _ = make_token(owner)
    for actor in (
        Actor.for_operator_token(owner, token.id, token.permissions),
        Actor.for_system("tests"),
    ):
        with pytest.raises(NotPermitted, match="Only a signed-in operator"):
            create_operator_token(actor=actor, name="x", permissions=["platform:read"])


def test_a_token_may_what_both_it_and_the_role_allow(owner: User) -> None:
    actor = Actor.for_operator_token(owner, "optok_x", ["catalog:write"])
    require_operator(actor, Permission.CATALOG_WRITE)
    with pytest.raises(NotPermitted, match="The operator token lacks the permission finance"):
        require_operator(actor, Permission.FINANCE_WRITE)


def test_a_demoted_operators_token_loses_power_at_once(owner: User) -> None:
    operator = make_operator("catalog")
    client = bearer_client(make_token(operator)[1])
    change_operator_role(actor=Actor.for_user(owner), user=operator, role="viewer")
    assert (status(client), status(client, "post")) == (200, 403)
    change_operator_role(actor=Actor.for_user(owner), user=operator, role="catalog")
    assert status(client, "post") == 201


def test_a_removed_operators_tokens_stay_revoked_if_they_return(owner: User) -> None:
    operator = make_operator("catalog")
    token, secret = make_token(operator)
    remove_operator(actor=Actor.for_user(owner), user=operator)
    User.objects.filter(id=operator.id).update(operator_role="owner")
    assert status(bearer_client(secret)) == 401
    assert AuditEvent.objects.filter(action="operator_token.revoked", target_id=token.id).exists()


def test_a_deactivated_operators_token_opens_nothing(owner: User) -> None:
    client = bearer_client(make_token(owner)[1])
    User.objects.filter(id=owner.id).update(is_active=False)
    assert status(client) == 401


def test_operators_revoke_their_own_tokens_and_owners_those_of_all(owner: User) -> None:
    catalog, viewer = make_operator("catalog"), make_operator("viewer")
    first, second = make_token(catalog)[0], make_token(catalog)[0]
    with pytest.raises(NotPermitted):
        revoke_operator_token(actor=Actor.for_user(viewer), token=first)
    revoke_operator_token(actor=Actor.for_user(catalog), token=first)
    revoke_operator_token(actor=Actor.for_user(owner), token=second)
    with pytest.raises(Conflict, match="already revoked"):
        revoke_operator_token(actor=Actor.for_user(owner), token=second)


def test_the_last_use_is_written_every_few_minutes(owner: User) -> None:
    token, secret = make_token(owner)
    client = bearer_client(secret)
    for ago, is_written in (
        (None, True),
        (timedelta(minutes=1), False),
        (TOKEN_USE_INTERVAL, True),
    ):
        before = ago and timezone.now() - ago
        OperatorToken.objects.update(last_used_at=before)
        assert status(client) == 200
        token.refresh_from_db()
        assert (token.last_used_at != before) == is_written


def test_the_audit_log_names_the_operator_and_the_token(owner: User) -> None:
    token, secret = make_token(owner)
    assert status(bearer_client(secret), "post") == 201
    event = AuditEvent.objects.get(action="model.created")
    assert (event.actor_kind, event.actor_id) == ("user", owner.id)
    assert (event.details["public_id"], event.details["operator_token"]) == ("owl", token.id)


def test_a_view_of_a_customer_is_in_its_audit_log(owner: User, org: SeededOrganization) -> None:
    token, secret = make_token(owner)
    bearer_client(secret).get(f"/api/v1/admin/organizations/{org.id}")
    event = AuditEvent.objects.get(action="organization.viewed_by_operator")
    assert (event.organization_id, event.actor_id) == (org.id, owner.id)
    assert event.details["operator_token"] == token.id


def send(client: Client, **form: object) -> str:
    return client.post(f"{LIST}add/", form).content.decode()


def test_a_token_is_created_in_the_admin_and_shown_once(client: Client) -> None:
    operator = make_operator("catalog")
    client.force_login(operator)
    form = client.get(f"{LIST}add/").content.decode()
    assert 'value="catalog:write"' in form
    assert "finance:write" not in form
    page = send(client, name="Nightly", permissions=["platform:read"])
    [secret] = re.findall(r"pen_op_\w{36}", page)
    assert status(bearer_client(secret)) == 200
    assert secret not in client.get(LIST).content.decode()
    assert OperatorToken.objects.get().created_by == operator


def test_a_form_cannot_ask_for_more_than_the_role(client: Client) -> None:
    client.force_login(make_operator("viewer"))
    assert "not one of the available choices" in send(
        client, name="x", permissions=["catalog:write"]
    )
    assert not OperatorToken.objects.exists()


def test_a_token_needs_a_recent_sign_in(client: Client) -> None:
    client.force_login(make_operator("catalog"))
    let_time_pass(client, 16 * 60)
    reply = client.post(f"{LIST}add/", {"name": "x", "permissions": ["platform:read"]})
    assert reply.status_code == 302
    assert not OperatorToken.objects.exists()


def test_operators_see_their_own_tokens_and_owners_all(client: Client, owner: User) -> None:
    operator = make_operator("catalog")
    mine, others = make_token(operator, name="Mine")[0], make_token(owner, name="Others")[0]
    client.force_login(operator)
    page = client.get(LIST).content.decode()
    assert ("Mine" in page, "Others" in page) == (True, False)
    assert client.get(f"{LIST}{others.id}/change/").status_code == 302
    assert mine.masked in client.get(f"{LIST}{mine.id}/change/").content.decode()
    chosen = {"action": "revoke", "_selected_action": [mine.id, others.id]}
    client.post(LIST, chosen)
    assert set(OperatorToken.objects.filter(revoked_at=None)) == {others}
    client.force_login(owner)
    page = client.get(LIST).content.decode()
    assert ("Mine" in page, "Others" in page) == (True, True)

"""The admin's door, and what each role of operators may do behind it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.catalog import services as catalog
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound
from control.operators.models import OperatorInvitation, OperatorToken
from control.operators.services import (
    accept_operator_invitation,
    change_operator_role,
    invite_operator,
    remove_operator,
    revoke_operator_invitation,
)
from control.organizations.services import (
    rename_organization,
    set_organization_terms,
    suspend_organization,
)
from control.permissions import (
    OPERATOR_PERMISSIONS,
    Actor,
    OperatorRole,
    Permission,
    operator_can,
    require,
)
from control.pricing import services as prices
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.second_factor import code_of

pytestmark = [
    pytest.mark.integration,
    pytest.mark.django_db,
    pytest.mark.usefixtures("still_codes"),
]
PASSWORD = "a-long-phrase-indeed"
LOGIN = "/accounts/login/?next=/admin/"
whole = pytest.mark.django_db(transaction=True)
"""For what is done on commit."""
ACTIVATE = "/accounts/2fa/totp/activate/"


@pytest.fixture(autouse=True)
def untried() -> None:
    """Nobody has tried to sign in before: tries are counted by address, which tests share."""
    cache.clear()


@pytest.fixture
def owner(db: None) -> User:
    return User.objects.create_superuser("owner@penstock.test", PASSWORD)


def operator(role: str) -> User:
    return User.objects.create_user(f"{role}@penstock.test", PASSWORD, operator_role=role)


def sign_in(client: Client, user: User, password: str = PASSWORD) -> Any:
    return client.post(LOGIN, {"login": user.email, "password": password})


def set_up_factor(client: Client) -> str:
    """Set a second factor up, for which the password is asked once more; return its secret."""
    client.post("/accounts/reauthenticate/", {"password": PASSWORD})
    secret: str = client.get(ACTIVATE).context["form"].secret
    assert client.post(ACTIVATE, {"code": code_of(secret)}).status_code == 302
    return secret


def test_the_admin_has_no_login_form_of_its_own(client: Client, owner: User) -> None:
    reply = client.get("/admin/", follow=True)
    assert reply.redirect_chain[-1][0] == "/accounts/login/?next=%2Fadmin%2F"
    for path in ("/admin/login/", "/admin/"):
        sent = {"username": owner.email, "password": PASSWORD}
        assert client.post(path, sent).status_code == 302
        assert "_auth_user_id" not in client.session


@whole
def test_an_operator_needs_a_second_factor(client: Client, owner: User) -> None:
    assert sign_in(client, owner)["location"] == "/admin/"
    reply = client.get("/admin/catalog/model/", follow=True)
    assert f"{ACTIVATE}?next=%2Fadmin%2Fcatalog%2Fmodel%2F" in dict(reply.redirect_chain)
    set_up_factor(client)
    assert client.get("/admin/").status_code == 200


@whole
def test_with_a_factor_it_is_asked_for_at_each_sign_in(client: Client, owner: User) -> None:
    sign_in(client, owner)
    secret = set_up_factor(client)
    other = Client()
    assert "/accounts/2fa/authenticate/" in sign_in(other, owner)["location"]
    assert other.get("/admin/").status_code == 302
    other.post("/accounts/2fa/authenticate/", {"code": "000000"})
    assert other.get("/admin/").status_code == 302
    other.post("/accounts/2fa/authenticate/", {"code": code_of(secret)})
    assert other.get("/admin/").status_code == 200


@whole
def test_a_session_from_before_the_factor_is_asked_for_it(client: Client, owner: User) -> None:
    old = Client()
    sign_in(old, owner)
    sign_in(client, owner)
    set_up_factor(client)
    reply = old.get("/admin/", follow=True)
    assert "/accounts/2fa/reauthenticate/" in reply.redirect_chain[-1][0]


def test_members_are_told_that_this_is_not_for_them(org: SeededOrganization) -> None:
    client = org.browser()
    assert client.get("/admin/", follow=True).status_code == 403
    assert client.get("/admin/login/").status_code == 403


def test_wrong_passwords_are_throttled(client: Client, owner: User) -> None:
    answers = [sign_in(client, owner, f"wrong-{n}") for n in range(30)]
    assert "Too many" in answers[-1].content.decode() or answers[-1].status_code == 429
    assert "_auth_user_id" not in client.session


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example/admin/", "/elsewhere"])
def test_the_door_leads_into_the_admin_only(client: Client, owner: User, wanted: str) -> None:
    client.force_login(owner)
    assert client.get("/admin/login/", {"next": wanted})["location"] == "/admin/"


def test_the_password_is_changed_at_the_account(client: Client, owner: User) -> None:
    client.force_login(owner)
    assert client.get("/admin/password_change/")["location"] == "/accounts/password/change/"


DEEDS: dict[str, tuple[Permission, Callable[..., object]]] = {
    "models": (
        Permission.CATALOG_WRITE,
        lambda actor, org: catalog.create_model(actor=actor, public_id="m", name="M"),
    ),
    "prices": (
        Permission.FINANCE_WRITE,
        lambda actor, org: prices.draft_book(actor=actor, name="Book"),
    ),
    "terms": (
        Permission.FINANCE_WRITE,
        lambda actor, org: set_organization_terms(
            actor=actor, organization=org.organization, billing_mode="postpaid",
            spend_limit_nanos=1, weight=1,
        ),
    ),
    "suspension": (
        Permission.CUSTOMERS_WRITE,
        lambda actor, org: suspend_organization(
            actor=actor, organization=org.organization, reason="abuse"),
    ),
    "names": (
        Permission.CUSTOMERS_WRITE,
        lambda actor, org: rename_organization(
            actor=actor, organization=org.organization, name="New"
        ),
    ),
    "operators": (
        Permission.OPERATORS_WRITE,
        lambda actor, org: invite_operator(
            actor=actor, email="new@penstock.test", role="viewer"
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("role", list(OperatorRole))
def test_each_role_does_its_part_and_no_other(org: SeededOrganization, role: str) -> None:
    actor = Actor.for_user(operator(role))
    for wanted, act in DEEDS.values():
        before = AuditEvent.objects.count()
        if wanted in OPERATOR_PERMISSIONS[role]:
            act(actor, org)
            assert AuditEvent.objects.count() > before
        else:
            with pytest.raises(NotPermitted, match=f"{role} lacks the permission {wanted}"):
                act(actor, org)
            assert AuditEvent.objects.count() == before


def test_a_viewer_looks_into_tenants_and_no_more(org: SeededOrganization) -> None:
    viewer = Actor.for_user(operator("viewer"))
    for action in set(Permission) - OPERATOR_PERMISSIONS["owner"]:
        if action in (Permission.ORGANIZATION_READ, Permission.BILLING_READ):
            require(viewer, org.organization.id, action)
        else:
            with pytest.raises(NotPermitted):
                require(viewer, org.organization.id, action)


def test_who_has_no_role_may_nothing() -> None:
    assert not any(operator_can(role, each) for role in (None, "", "king") for each in Permission)


def test_a_viewer_is_offered_nothing_to_do(rf: Any) -> None:
    """Of any page there is or will be, but that of their own tokens: no form to add or change, no
    action of lists."""
    request = rf.get("/")
    request.user = operator("viewer")
    for model in admin.site._registry.keys() - {OperatorToken}:
        page = admin.site._registry[model]
        assert not page.has_add_permission(request), page
        assert not page.has_change_permission(request), page
        assert not page.has_delete_permission(request), page
        assert page.get_actions(request) == {}, page


OWNERS_ONLY = {"audit", "mail", "feed", "webhooks", "dataplane", "operators", "alarms"}
"""Of which nothing is changed in the admin."""


def test_every_app_with_rows_says_who_may_change_them() -> None:
    apps = {model._meta.app_config for model in admin.site._registry}
    silent = {app.label for app in apps if not hasattr(app, "change_permission")}
    assert silent <= OWNERS_ONLY


def test_a_viewer_publishes_no_price_book_by_its_address(client: Client) -> None:
    book = prices.draft_book(actor=Actor.for_user(operator("owner")), name="Book")
    client.force_login(operator("viewer"))
    place = f"/admin/pricing/pricebook/{book.id}"
    assert client.get(f"{place}/change/").status_code == 200
    assert client.post(f"{place}/publish/", {"confirmation": ""}).status_code == 403
    book.refresh_from_db()
    assert not book.is_published


def test_letters_hold_live_links_so_only_owners_read_them(client: Client) -> None:
    client.force_login(operator("finance"))
    assert client.get("/admin/mail/storedemail/").status_code == 403


def invite(owner: User, email: str = "new@penstock.test", role: str = "finance") -> str:
    return invite_operator(actor=Actor.for_user(owner), email=email, role=role)[1]


def test_an_operator_comes_by_invitation_and_goes(client: Client, owner: User) -> None:
    user = User.objects.create_user("new@penstock.test", PASSWORD)
    client.force_login(user)
    page = f"/operators/invitations/{invite(owner)}"
    assert client.get(page).status_code == 200
    assert client.post(page)["location"] == "/admin/"
    assert client.get("/admin/pricing/pricebook/add/").status_code == 200
    assert client.get("/admin/catalog/model/add/").status_code == 403
    change_operator_role(actor=Actor.for_user(owner), user=user, role="catalog")
    assert client.get("/admin/catalog/model/add/").status_code == 200
    remove_operator(actor=Actor.for_user(owner), user=user)
    assert client.get("/admin/", follow=True).status_code == 403
    done = AuditEvent.objects.filter(action__startswith="operator.").order_by("id")
    assert [each.action.partition(".")[2] for each in done] == [
        "invited", "invitation_accepted", "role_changed", "removed",
    ]  # fmt: skip
    assert done[2].details == {
        "email": f"⟦{user.id}⟧",
        "before": {"role": "finance"},
        "after": {"role": "catalog"},
    }


def test_an_invitation_is_for_one_person_once(org: SeededOrganization, owner: User) -> None:
    secret = invite(owner)
    with pytest.raises(ObjectNotFound):
        accept_operator_invitation(user=org.owner, secret=secret)
    user = User.objects.create_user("new@penstock.test")
    accept_operator_invitation(user=user, secret=secret)
    with pytest.raises(ObjectNotFound):
        accept_operator_invitation(user=user, secret=secret)


def test_late_withdrawn_and_replaced_invitations_open_nothing(owner: User) -> None:
    user = User.objects.create_user("new@penstock.test")

    def opens(secret: str) -> bool:
        try:
            accept_operator_invitation(user=user, secret=secret)
        except ObjectNotFound:
            return False
        return True

    first, second = invite(owner), invite(owner)
    assert not opens(first)
    OperatorInvitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert not opens(second)
    third = invite(owner)
    (open_one,) = OperatorInvitation.objects.filter(revoked_at=None)
    revoke_operator_invitation(actor=Actor.for_user(owner), invitation=open_one)
    assert not opens(third)


def test_the_last_owner_stays(owner: User) -> None:
    with pytest.raises(Conflict, match="needs an owner"):
        remove_operator(actor=Actor.for_user(owner), user=owner)
    with pytest.raises(Conflict, match="needs an owner"):
        change_operator_role(actor=Actor.for_user(owner), user=owner, role="viewer")
    User.objects.create_superuser("second@penstock.test")
    remove_operator(actor=Actor.for_user(owner), user=owner)


@pytest.mark.parametrize(("email", "role"), [("nobody", "viewer"), ("a@b.example", "king")])
def test_what_is_wrong_with_an_invitation_is_said(owner: User, email: str, role: str) -> None:
    with pytest.raises(InvalidValue):
        invite_operator(actor=Actor.for_user(owner), email=email, role=role)


def test_owners_invite_in_the_admin(client: Client, owner: User) -> None:
    client.force_login(owner)
    sent = {"email": "new@penstock.test", "role": "support"}
    client.post("/admin/operators/operatorinvitation/add/", sent)
    assert OperatorInvitation.objects.get().email == sent["email"]
    assert client.get("/admin/operators/operator/").status_code == 200

"""A thing's state is told once: lists, counts, pages, buttons and APIs say the same of every state
of keys, tokens, invitations, webhook endpoints, price books, deployments and credit."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import Model as Row
from django.test import Client
from django.utils import timezone

from billing.credit.models import CreditGrant, GrantKind, GrantState
from billing.credit.services.grants import expire_grants, grant_credit, reverse_grant
from control.accounts.models import User
from control.admin.base import row_url
from control.api_keys import selectors as keys
from control.api_keys.models import ApiKey, digests_of
from control.api_keys.services import revoke_key
from control.catalog import fleet_status
from control.catalog.fleet_status import FleetStatus
from control.catalog.models import DeploymentState
from control.catalog.retirement import end_deployment
from control.db.models import CredentialState, InvitationState, credentials_in
from control.errors import Conflict
from control.operators.models import OperatorInvitation, OperatorToken
from control.operators.selectors import token_by_digests
from control.operators.services import invite_operator, revoke_operator_invitation
from control.organizations.members import (
    accept_invitation,
    invite_member,
    resend_invitation,
    revoke_invitation,
)
from control.organizations.models import Invitation
from control.permissions import Role
from control.pricing import services as pricing
from control.pricing.models import BookState, PriceBook
from control.webhooks import services as webhooks
from control.webhooks.models import EndpointState, WebhookEndpoint
from serving.contract.replica import ReplicaRecord
from tests.fixtures.mails import delivered
from tests.fixtures.operator_tokens import METERS, bearer_client, make_operator, make_token
from tests.fixtures.organizations import (
    OPERATOR,
    SeededOrganization,
    make_deployment,
    make_model,
    make_variant,
)
from tests.fixtures.spending import settle, use
from tests.fixtures.usage import Customer
from web.console.base import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
HOUR = timedelta(hours=1)


@pytest.fixture
def operator(db: None) -> Client:
    """An operator's browser."""
    client = Client()
    client.force_login(User.objects.create_superuser("operator@penstock.test"))
    return client


@pytest.fixture
def script(db: None) -> Client:
    """A script with an operator's token."""
    return bearer_client(make_token(make_operator())[1])


def update(row: Row, **fields: Any) -> None:
    """Change a row as time or another process would have."""
    type(row)._default_manager.filter(pk=row.pk).update(**fields)  # type: ignore[attr-defined]
    row.refresh_from_db()


def badges(page: str) -> list[str]:
    return re.findall(r'<span class="badge[^"]*">([^<]+)</span>', page)


def cell(client: Client, model: str) -> list[str]:
    """Return the column *State* of a list in the admin."""
    page = client.get(f"/admin/{model}/").content.decode()
    return [text.strip() for text in re.findall(r"field-state[^>]*>(.*?)</td>", page, re.S)]


def admin_page(client: Client, row: Row) -> str:
    label = f"admin:{row._meta.app_label}_{row._meta.model_name}_change"
    return str(client.get(row_url(label, row.pk)).content.decode())


def has_button(page: str, action: str) -> bool:
    """Whether an object's page in the admin offers an action."""
    return re.search(rf'href="[^"]*/{action}/?"', page) is not None


# API keys and operator tokens


def put_into(key: ApiKey | OperatorToken, state: CredentialState) -> None:
    now = timezone.now()
    if state == CredentialState.EXPIRED:
        update(key, expires_at=now - HOUR)
    elif state == CredentialState.REVOKED:
        update(key, expires_at=now - HOUR, revoked_at=now)


@pytest.mark.parametrize("state", CredentialState)
def test_a_keys_state(
    member: Client, operator: Client, org: SeededOrganization, state: CredentialState
) -> None:
    key, secret = org.mint()
    put_into(key, state)
    now, is_active = timezone.now(), state == CredentialState.ACTIVE
    found = keys.key_by_digests(digests_of(secret), now)
    assert (found is not None) == is_active
    assert [s for s in CredentialState if ApiKey.objects.filter(credentials_in(s, now))] == [state]

    listed = member.get(address(org.organization, "keys")).content.decode()
    assert badges(listed) == ([] if state == CredentialState.REVOKED else [state.label])
    assert cell(operator, "api_keys/apikey") == [state.label]
    project = member.get(address(org.organization, "project", org.project.id)).content.decode()
    assert f"<dt>Active API keys</dt><dd>{int(is_active)}</dd>" in project
    team = member.get(address(org.organization, "team")).content.decode()
    assert f'<td class="hide-small num">{int(is_active)}</td>' in team
    figures = {title: figure for title, figure, _ in operator.get("/admin/").context["figures"]}
    assert figures["Active API keys"] == int(is_active)

    reply = member.get(address(org.organization, "key", key.id))
    if state == CredentialState.REVOKED:
        assert reply.status_code == 404
    else:
        page = reply.content.decode()
        assert badges(page)[0] == state.label
        assert ("keeps working until the time you choose" in page) == is_active
        assert ("This key expired" in page) == (not is_active)
        assert ("New expiry" in page) == (not is_active)

    api = org.api()
    assert api.get("api-keys").json()["data"][0]["state"] == state
    rotated = api.post(f"api-keys/{key.id}/rotate", {"last_four": key.last_four})
    assert rotated.status_code == (200 if is_active else 409)
    named = api.patch(f"api-keys/{key.id}", {"name": "Frontend"})
    assert named.status_code == (409 if state == CredentialState.REVOKED else 200)


@pytest.mark.parametrize("lifetime", ["never", "90"])
def test_an_expired_key_is_rotated_with_a_new_expiry(
    member: Client, org: SeededOrganization, lifetime: str
) -> None:
    key, old = org.mint()
    org.api().post(f"api-keys/{key.id}/rotate", {"last_four": key.last_four})
    key.refresh_from_db()
    put_into(key, CredentialState.EXPIRED)
    where, form = address(org.organization, "key_rotate", key.id), {"last_four": key.last_four}
    refused = member.post(where, form | {"overlap": "24"})
    assert refused.status_code == 400
    shown = member.get(member.post(where, form | {"lifetime": lifetime}).url)
    page, secret = shown.content.decode(), shown.context["secret"]
    assert "both work" not in page
    now = timezone.now()
    assert keys.key_by_digests(digests_of(secret), now) is not None
    assert keys.key_by_digests(digests_of(old), now) is None
    key.refresh_from_db()
    days = None if lifetime == "never" else 90
    assert key.expires_at is None if days is None else (key.expires_at - now).days in (89, 90)


def test_a_script_rotates_an_expired_key_with_a_new_expiry(org: SeededOrganization) -> None:
    key, old = org.mint()
    put_into(key, CredentialState.EXPIRED)
    api, where = org.api(), f"api-keys/{key.id}/rotate"
    refused = api.post(where, {"last_four": key.last_four})
    assert (refused.status_code, refused.json()["error"]["param"]) == (409, "expires_at")
    past = {"last_four": key.last_four, "expires_at": "2020-01-01T00:00:00Z"}
    assert api.post(where, past).status_code == 400
    made = api.post(where, {"last_four": key.last_four, "expires_at": None}).json()
    assert (made["state"], made["expires_at"], made["previous_secrets"]) == ("active", None, [])
    now = timezone.now()
    assert keys.key_by_digests(digests_of(made["secret"]), now) is not None
    assert keys.key_by_digests(digests_of(old), now) is None


def test_the_mail_about_a_revoked_key_says_what_it_was(org: SeededOrganization) -> None:
    developer = org.join(Role.DEVELOPER)
    words = {CredentialState.ACTIVE: "stopped working", CredentialState.EXPIRED: "had expired"}
    for state, said in words.items():
        key, _ = org.mint()
        update(key, created_by=developer)
        put_into(key, state)
        revoke_key(actor=org.actor, key=key)
        assert said in delivered()[-1].body


@pytest.mark.parametrize("state", CredentialState)
def test_an_operator_tokens_state(state: CredentialState) -> None:
    owner = make_operator()
    token, secret = make_token(owner)
    put_into(token, state)
    works = state == CredentialState.ACTIVE
    assert (token_by_digests([token.digest], timezone.now()) is not None) == works
    assert bearer_client(secret).get("/api/v1/admin/models").status_code == (200 if works else 401)
    browser = Client()
    browser.force_login(User.objects.create_superuser("operator@penstock.test"))
    assert cell(browser, "operators/operatortoken") == [state.label]


# Invitations


@pytest.mark.parametrize("state", InvitationState)
def test_an_invitations_state(
    member: Client, org: SeededOrganization, state: InvitationState
) -> None:
    invitation, secret = invite_member(
        actor=org.actor, organization=org.organization, email="guest@acme.example", role="viewer"
    )
    guest = User.objects.create_user("guest@acme.example")
    if state == InvitationState.EXPIRED:
        update(invitation, expires_at=timezone.now() - HOUR)
    elif state == InvitationState.USED:
        accept_invitation(user=guest, secret=secret)
    elif state == InvitationState.WITHDRAWN:
        revoke_invitation(actor=org.actor, invitation=invitation)
    invitation.refresh_from_db()
    assert invitation.state(timezone.now()) == state
    waits = state in (InvitationState.OPEN, InvitationState.EXPIRED)
    page = member.get(address(org.organization, "team")).content.decode()
    assert (state.label in badges(page)) == waits
    assert ("Send again" in page) == waits
    listed = org.api().get("invitations").json()["data"]
    assert [each["state"] for each in listed] == ([state] if waits else [])
    reply = org.api().delete(f"invitations/{invitation.id}")
    assert reply.status_code == (204 if waits else 404)


@pytest.mark.parametrize("state", [InvitationState.USED, InvitationState.WITHDRAWN])
def test_an_invitation_that_is_over_is_neither_withdrawn_nor_sent_again(
    org: SeededOrganization, state: InvitationState
) -> None:
    invitation, secret = invite_member(
        actor=org.actor, organization=org.organization, email="guest@acme.example", role="viewer"
    )
    if state == InvitationState.USED:
        accept_invitation(user=User.objects.create_user("guest@acme.example"), secret=secret)
    else:
        revoke_invitation(actor=org.actor, invitation=invitation)
    for act in (revoke_invitation, resend_invitation):
        with pytest.raises(Conflict, match=state):
            act(actor=org.actor, invitation=invitation)
    assert Invitation.objects.count() == 1


@pytest.mark.parametrize("state", InvitationState)
def test_an_operator_invitations_state(operator: Client, state: InvitationState) -> None:
    invitation, _ = invite_operator(actor=OPERATOR, email="new@penstock.test", role="support")
    now = timezone.now()
    ends = {
        InvitationState.EXPIRED: {"expires_at": now - HOUR},
        InvitationState.USED: {"accepted_at": now},
        InvitationState.WITHDRAWN: {"revoked_at": now},
    }
    update(invitation, **ends.get(state, {}))
    waits = state in (InvitationState.OPEN, InvitationState.EXPIRED)
    assert invitation.state(now) == state
    assert cell(operator, "operators/operatorinvitation") == ([state.label] if waits else [])
    if waits:
        revoke_operator_invitation(actor=OPERATOR, invitation=invitation)
        assert OperatorInvitation.objects.get().state(now) == InvitationState.WITHDRAWN
    else:
        with pytest.raises(Conflict, match=state):
            revoke_operator_invitation(actor=OPERATOR, invitation=invitation)


# Webhook endpoints

ENDPOINT: dict[EndpointState, dict[str, Any]] = {
    EndpointState.ENABLED: {},
    EndpointState.FAILING: {"failing_since": timezone.now() - HOUR},
    EndpointState.DISABLED: {"is_enabled": False},
    EndpointState.DISABLED_BY_PLATFORM: {"is_enabled": False, "disabled_reason": "It was gone."},
    EndpointState.DELETED: {"is_enabled": False, "deleted_at": timezone.now()},
}


@pytest.mark.parametrize("state", EndpointState)
def test_a_webhook_endpoints_state(
    member: Client, operator: Client, org: SeededOrganization, state: EndpointState
) -> None:
    endpoint, _ = webhooks.create_endpoint(
        actor=org.actor,
        organization=org.organization,
        url="https://hooks.acme.example/in",
        event_types=["api_key.created"],
    )
    update(endpoint, **ENDPOINT[state])
    is_deleted = state == EndpointState.DELETED
    receives = state in (EndpointState.ENABLED, EndpointState.FAILING)
    told = [] if is_deleted else [state.label]
    assert badges(member.get(address(org.organization, "webhooks")).content.decode()) == told
    assert cell(operator, "webhooks/webhookendpoint") == told
    reply = member.get(address(org.organization, "webhook", endpoint.id))
    assert reply.status_code == (404 if is_deleted else 200)
    if not is_deleted:
        page = reply.content.decode()
        assert badges(page)[0] == state.label
        assert ("Send a test" in page) == receives
        assert (">Enable<" in page, ">Disable<" in page) == (not receives, receives)
        assert ("Disabled by the platform." in page) == bool(endpoint.disabled_reason)
    api = org.api()
    assert [each["state"] for each in api.get("webhook-endpoints").json()["data"]] == (
        [] if is_deleted else [state]
    )
    tested = api.post(f"webhook-endpoints/{endpoint.id}/test")
    assert tested.status_code == (404 if is_deleted else 202 if receives else 409)
    org.mint()
    assert (
        WebhookEndpoint.objects.get()
        .deliveries.filter(event__event_type="api_key.created")
        .exists()
        == receives
    )


# Price books


def make_book(state: BookState) -> PriceBook:
    variant, now = make_variant(make_model()), timezone.now()

    def draft(**fields: Any) -> PriceBook:
        book = pricing.draft_book(actor=OPERATOR, name="Ours", **fields)
        pricing.set_price(actor=OPERATOR, book=book, variant=variant, **METERS)
        return book

    book = draft()
    if state == BookState.DRAFT:
        return book
    later = state in (BookState.SCHEDULED, BookState.CANCELLED)
    book = pricing.publish_book(
        actor=OPERATOR, book=book, effective_at=now + HOUR if later else None
    )
    if state == BookState.CANCELLED:
        pricing.cancel_book(actor=OPERATOR, book=book)
    if state == BookState.SUPERSEDED:
        pricing.publish_book(actor=OPERATOR, book=draft())
    return book


@pytest.mark.parametrize("state", [state for state in BookState if state != BookState.EXPIRED])
def test_a_price_books_state(operator: Client, script: Client, state: BookState) -> None:
    book = make_book(state)
    assert PriceBook.objects.get(pk=book.pk).state(timezone.now()) == state
    assert cell(operator, "pricing/pricebook")[-1] == state.label
    page = admin_page(operator, book)
    assert has_button(page, "publish") == (state == BookState.DRAFT)
    assert has_button(page, "cancel") == (state == BookState.SCHEDULED)
    base = f"/api/v1/admin/price-books/{book.id}"
    assert script.get(base).json()["state"] == state
    renamed = script.patch(base, {"name": "Theirs"}, content_type="application/json")
    assert renamed.status_code == (200 if state == BookState.DRAFT else 409)
    cancelled = script.post(f"{base}/cancel")
    assert cancelled.status_code == (200 if state == BookState.SCHEDULED else 409)


def test_a_contract_expires_and_a_book_is_superseded_once_all_its_prices_are(
    org: SeededOrganization,
) -> None:
    small, large, now = (
        make_variant(make_model()),
        make_variant(make_model("large")),
        timezone.now(),
    )

    def publish(*variants: Any, **fields: Any) -> PriceBook:
        book = pricing.draft_book(actor=OPERATOR, name="Ours", **fields)
        for variant in variants:
            pricing.set_price(actor=OPERATOR, book=book, variant=variant, **METERS)
        return pricing.publish_book(actor=OPERATOR, book=book)

    contract = publish(small, organization=org.organization, ends_at=now + HOUR)
    first = publish(small, large)
    half = publish(small)
    for book, expected in ((contract, "active"), (first, "active"), (half, "active")):
        assert PriceBook.objects.get(pk=book.pk).state(timezone.now()) == expected
    assert contract.state(now + HOUR) == BookState.EXPIRED
    publish(large)
    states = {
        book.pk: book.state(timezone.now()) for book in PriceBook.objects.filter(organization=None)
    }
    assert states[first.pk] == BookState.SUPERSEDED
    assert states[half.pk] == BookState.ACTIVE


# Deployments

FLEETS: dict[DeploymentState, tuple[str, ...] | None] = {
    DeploymentState.READY: ("failed", "loading", "ready"),
    DeploymentState.LOADING: ("failed", "canary"),
    DeploymentState.ASLEEP: ("asleep", "stopped"),
    DeploymentState.FAILED: ("failed", "stopped"),
    DeploymentState.STOPPED: ("draining",),
    DeploymentState.ENDED: ("draining",),
    DeploymentState.UNKNOWN: None,
}


@pytest.mark.parametrize("state", DeploymentState)
def test_a_deployments_state(
    operator: Client, script: Client, monkeypatch: pytest.MonkeyPatch, state: DeploymentState
) -> None:
    wanted = 0 if state in (DeploymentState.STOPPED, DeploymentState.ENDED) else 1
    deployment = make_deployment(make_variant(make_model()), replicas_min=wanted)
    if state == DeploymentState.ENDED:
        deployment = end_deployment(actor=OPERATOR, deployment=deployment)
    replicas = tuple(
        ReplicaRecord(
            f"rep_{name}",
            deployment.id,
            "http://r",
            name,
            4,
            timezone.now(),
            "simulated",  # type: ignore[arg-type]
        )
        for name in FLEETS[state] or ()
    )
    fleet = FleetStatus(replicas, is_down=FLEETS[state] is None)
    fleet_status.cache.clear()
    monkeypatch.setattr(fleet_status, "_poll", lambda: fleet)
    assert deployment.state(fleet) == state
    assert cell(operator, "catalog/deployment") == [state.label]
    assert str(state.label) in admin_page(operator, deployment)
    assert script.get(f"/api/v1/admin/deployments/{deployment.id}").json()["state"] == state


def test_a_deployment_that_the_fleet_has_not_begun_is_loading() -> None:
    deployment = make_deployment(make_variant(make_model()), replicas_min=1)
    assert deployment.state(FleetStatus()) == DeploymentState.LOADING


# Credit


def give(org: SeededOrganization, state: GrantState) -> CreditGrant:
    now = timezone.now()
    grant = grant_credit(
        organization_id=org.id, kind=GrantKind.PROMOTIONAL, amount_nanos=500, actor=OPERATOR,
        idempotency_key=state, reason="tests", now=now, expires_at=now + HOUR,
    )  # fmt: skip
    if state == GrantState.REVERSED:
        reverse_grant(actor=OPERATOR, grant_id=grant.id, reason="mistake", now=now)
    if state == GrantState.EXPIRED:
        update(grant, expires_at=now - HOUR)
    if state == GrantState.USED:
        customer = Customer(org.organization, org.project, org.mint()[0])
        use(customer, 500)
        settle(customer, now=now)
    return CreditGrant.objects.get(pk=grant.pk)


@pytest.mark.parametrize("is_taken_back", [False, True])
@pytest.mark.parametrize("state", GrantState)
def test_a_grants_state(
    operator: Client,
    script: Client,
    org: SeededOrganization,
    state: GrantState,
    is_taken_back: bool,
) -> None:
    grant, now = give(org, state), timezone.now()
    if is_taken_back:
        expire_grants(now=now)
        grant = CreditGrant.objects.get(pk=grant.pk)
    assert grant.state(now) == state
    assert cell(operator, "credit/creditgrant") == [state.label]
    page = admin_page(operator, grant)
    assert str(state.label) in page
    assert has_button(page, "reverse") == (state == GrantState.ACTIVE)
    listed = script.get(f"/api/v1/admin/organizations/{org.id}/credit-grants").json()["data"]
    assert [each["state"] for each in listed] == [state]

"""A copy of what is known of a person, and their end: complete, refused where it must be, and
nobody else's business."""

import io
import json
import zipfile
from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from control.accounts.models import FormerAddress, User
from control.admin.base import row_url
from control.api_keys.models import ApiKey, Scope
from control.api_keys.services import create_api_key
from control.audit import hash_chain
from control.audit.models import AuditEvent
from control.audit.pseudonyms import ERASED, NameResolver
from control.data_requests import erasure, inventory, services
from control.data_requests.inventory import STORED_DATA
from control.data_requests.models import DataSubjectRequest, RequestKind, RequestState
from control.data_requests.services import take_export
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound
from control.mail.server_url import MAILBOX_BACKEND
from control.mail.services import send_mail
from control.operators.models import OperatorInvitation
from control.operators.services import invite_operator
from control.organizations.members import change_role, invite_member
from control.organizations.models import Invitation, Membership
from control.outbox.models import OutboxMessage
from control.permissions import Actor
from control.tasks import run_data_requests
from tests.fixtures.mails import CONTEXT, delivered
from tests.fixtures.organizations import SeededOrganization

pytestmark = pytest.mark.django_db


@pytest.fixture
def grace(org: SeededOrganization) -> User:
    """An admin with keys, an address, a factor, a session, mails and invitations."""
    user = org.join("admin")
    EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
    Authenticator.objects.create(user=user, type="totp", data={"secret": "TOTPSECRET"})
    Client().force_login(user)
    actor = org.actor_of(user)
    for scope in (Scope.INFERENCE, Scope.MANAGE):
        create_api_key(actor=actor, project=org.project, name=f"Hers {scope}", scopes=[scope])
    invite_member(
        actor=actor, organization=org.organization, email="new@else.example", role="viewer"
    )
    return user


def ask(
    user: User, kind: str, confirmation: str = "", by: User | None = None
) -> DataSubjectRequest:
    asked_by = by or user
    return services.create_request(
        actor=Actor.for_user(asked_by),
        asked_by=asked_by,
        user=user,
        kind=kind,
        confirmation=confirmation,
    )


def done(data_request: DataSubjectRequest) -> DataSubjectRequest:
    run_data_requests()
    data_request.refresh_from_db()
    return data_request


def erased(user: User) -> User:
    data_request = done(ask(user, RequestKind.ERASURE, user.email))
    assert data_request.state == RequestState.DONE, data_request.told
    user.refresh_from_db()
    return user


def content_of(data_request: DataSubjectRequest) -> dict[str, object]:
    with zipfile.ZipFile(io.BytesIO(bytes(data_request.export or b""))) as archive:
        names = [name for name in archive.namelist() if name.endswith(".json")]
        return {name.removesuffix(".json"): json.loads(archive.read(name)) for name in names}


def operator(role: str) -> User:
    return User.objects.create_user(f"{role}@penstock.test", operator_role=role)


def test_every_table_that_names_a_user_has_its_place() -> None:
    fields = [each for each in User._meta.get_fields(include_hidden=True) if each.auto_created]
    found = {
        (each.related_model._meta.label, each.field.name)  # type: ignore[union-attr]
        for each in fields
        if not each.concrete
    }
    placed = {(each.table, each.field) for each in STORED_DATA}
    assert found - placed == set(), "say in control.data_requests.inventory what becomes of these"


def test_a_copy_holds_what_is_known_and_no_secret(org: SeededOrganization, grace: User) -> None:
    data_request = done(ask(grace, RequestKind.EXPORT))
    assert (data_request.state, data_request.percent) == (RequestState.DONE, 100)
    content = content_of(data_request)
    assert content["account"][0]["email"] == grace.email  # type: ignore[index]
    assert [each["role"] for each in content["membership-user"]] == ["admin"]  # type: ignore[attr-defined]
    keys = content["apikey-created_by"]
    assert {each["name"] for each in keys} == {"Hers inference", "Hers manage"}  # type: ignore[attr-defined]
    assert len(content["sessions"]) == 1  # type: ignore[arg-type]
    assert content["emailaddress-user"] == [
        {"email": grace.email, "verified": True, "primary": True}
    ]
    kinds = sorted(each["kind"] for each in content["mails"])  # type: ignore[attr-defined]
    assert kinds == ["invitation", "security_email", "security_email"]
    events = content["audit-events"]
    assert {each["action"] for each in events} >= {"api_key.created", "member.invited"}  # type: ignore[attr-defined]
    everything = json.dumps(content)
    for secret in ("TOTPSECRET", "digest", "password", org.owner.email, "new@else.example"):
        assert secret not in everything, secret


def test_a_copy_is_deleted_after_a_week(grace: User) -> None:
    data_request = done(ask(grace, RequestKind.EXPORT))
    now = timezone.now()
    assert services.purge(now=now + timedelta(days=6)) == 0
    assert services.purge(now=now + timedelta(days=8)) == 1
    with pytest.raises(ObjectNotFound):
        take_export(
            actor=Actor.for_user(grace), request=DataSubjectRequest.objects.get(id=data_request.id)
        )


def test_who_is_erased_leaves_an_id_and_nothing_else(org: SeededOrganization, grace: User) -> None:
    email = grace.email
    invite_member(
        actor=org.actor, organization=org.organization, email="x@y.example", role="viewer"
    )
    invite_operator(actor=Actor.for_user(operator("owner")), email=email, role="viewer")
    hash_chain.chain_events()
    user = erased(grace)
    assert user.email.endswith("@erased.invalid")
    assert (user.name, user.is_active, user.has_usable_password()) == ("", False, False)
    assert not Membership.objects.filter(user=user).exists()
    assert not EmailAddress.objects.filter(user=user).exists()
    assert not Authenticator.objects.filter(user=user).exists()
    assert not ApiKey.objects.filter(created_by=user, revoked_at=None).exists()
    assert Session.objects.count() == 0
    assert not Invitation.objects.filter(email=email).exists()
    assert not OperatorInvitation.objects.filter(email=email).exists()
    assert not OutboxMessage.objects.filter(payload__to=email).exists()
    assert Invitation.objects.filter(email="new@else.example").exists()
    assert email not in str(list(AuditEvent.objects.values()))


def emailed(to: str, organization: SeededOrganization, subject: str) -> None:
    """Email an address, with an invitation that is withdrawn."""
    send_mail(
        template="invitation", to=[to], context={**CONTEXT, "organization": subject}, key=subject,
        organization_id=None, now=timezone.now(),
    )  # fmt: skip
    Invitation.objects.create(
        organization=organization.organization, email=to, role="viewer", digest=subject,
        expires_at=timezone.now(), revoked_at=timezone.now(),
    )  # fmt: skip
    delivered()


def known_of(user: User) -> set[str]:
    """Return the subjects that a person's export and erasure know of."""
    emails, outbox = inventory.stored_emails(user), inventory.outbox_mails(user)
    assert emails.count() == outbox.count()
    keys = {each.key.partition(":")[0] for each in outbox}
    digests = inventory.invitations(user)[0].values_list("digest", flat=True)
    assert keys & {"one", "two", "three"} == set(digests)
    return set(digests)


def test_a_former_address_is_its_holders_until_then(
    org: SeededOrganization, grace: User, settings: Any
) -> None:
    """Each of two holders has what was sent while the address was theirs."""
    settings.EMAIL_BACKEND = MAILBOX_BACKEND
    OutboxMessage.objects.all().delete()
    Invitation.objects.all().delete()
    address = grace.email
    emailed(address, org, "one")
    User.objects.filter(pk=grace.pk).update(email="grace@home.example")
    EmailAddress.objects.get(user=grace).delete()
    ida = User.objects.create_user(address)
    EmailAddress.objects.create(user=ida, email=address, verified=True, primary=True)
    EmailAddress.objects.create(user=grace, email=address)  # typed, never verified
    emailed(address, org, "two")
    grace.refresh_from_db()
    assert (known_of(grace), known_of(ida)) == ({"one"}, {"two"})
    content = content_of(done(ask(grace, RequestKind.EXPORT)))
    assert [each["email"] for each in content["formeraddress-user"]] == [address]  # type: ignore[attr-defined]
    erased(grace)
    assert {each.digest for each in Invitation.objects.all()} == {"two"}
    assert known_of(ida) == {"two"}
    assert not FormerAddress.objects.exists()


def test_deeds_stay_and_name_an_erased_person(org: SeededOrganization, grace: User) -> None:
    minted = AuditEvent.objects.filter(action="api_key.created", actor_id=grace.id)
    assert NameResolver(minted).actor(minted[0]) == grace.email
    hash_chain.chain_events()
    user = erased(grace)
    assert minted.count() == 2
    accepted = AuditEvent.objects.get(action="member.invitation_accepted", actor_id=user.id)
    invited = AuditEvent.objects.filter(action="member.invited").order_by("id")[0]
    names = NameResolver([minted[0], accepted, invited])
    assert names.actor(minted[0]) == ERASED
    assert names.details(accepted)["email"] == ERASED
    assert names.details(invited)["email"] == ERASED
    hash_chain.chain_events()
    assert hash_chain.verify_chain(now=timezone.now()).faults == []


def test_who_signs_up_again_is_somebody_new(
    org: SeededOrganization, grace: User, client: Client
) -> None:
    email = grace.email
    old = erased(grace)
    client.post("/accounts/signup/", {"email": email, "password1": "correct horse battery staple"})
    new = User.objects.get(email=email)
    assert new.id != old.id
    assert [seat.organization.name for seat in Membership.objects.filter(user=new)] != ["Acme"]
    assert (
        NameResolver(AuditEvent.objects.filter(actor_id=old.id)).actor(
            AuditEvent(actor_kind="user", actor_id=old.id)
        )
        == ERASED
    )


def test_sessions_end_at_once(org: SeededOrganization, grace: User) -> None:
    browser = Client()
    browser.force_login(grace)
    assert browser.get(f"/{org.id}/overview").status_code == 200
    erased(grace)
    reply = browser.get(f"/{org.id}/overview")
    assert reply.status_code == 302
    assert reply.headers["location"].startswith("/accounts/login/")


def test_a_sole_owner_is_told_of_what_and_stays(org: SeededOrganization) -> None:
    with pytest.raises(Conflict, match="Acme has no other owner"):
        ask(org.owner, RequestKind.ERASURE, org.owner.email)
    second = org.join("admin")
    change_role(actor=org.actor, membership=org.seat(second), role="owner")
    data_request = ask(org.owner, RequestKind.ERASURE, org.owner.email)
    change_role(actor=org.actor_of(second), membership=org.seat(second), role="admin")
    assert done(data_request).state == RequestState.REFUSED  # it changed meanwhile
    assert "Acme has no other owner" in data_request.told[0]
    org.owner.refresh_from_db()
    assert org.owner.is_active
    assert org.seat(org.owner).role == "owner"


def test_an_operator_is_dismissed_first() -> None:
    user = operator("finance")
    assert "operator" in erasure.obstacles(user)[0]
    with pytest.raises(Conflict, match="remove the operator"):
        ask(user, RequestKind.ERASURE, user.email)


def test_nobody_is_erased_without_the_address_typed(grace: User) -> None:
    for typed in ("", "grace", "other@acme.example"):
        with pytest.raises(InvalidValue):
            ask(grace, RequestKind.ERASURE, typed)
    assert not DataSubjectRequest.objects.exists()


def test_a_rehearsal_changes_nothing_and_says_what_would(grace: User) -> None:
    data_request = done(ask(grace, RequestKind.ERASURE_DRY_RUN))
    assert data_request.state == RequestState.DONE
    assert "Membership ends in: Acme." in data_request.told
    assert "2 API keys that this person created stop working within a second." in data_request.told
    grace.refresh_from_db()
    assert grace.is_active
    assert ApiKey.objects.filter(created_by=grace, revoked_at=None).count() == 2


def test_others_may_not_ask_and_only_who_helps_may(
    org: SeededOrganization, outsider: SeededOrganization
) -> None:
    for by in (outsider.owner, operator("viewer"), operator("finance"), operator("catalog")):
        for kind in RequestKind.values:
            with pytest.raises(NotPermitted):
                ask(org.owner, kind, org.owner.email, by=by)
    helper = operator("support")
    data_request = done(ask(org.owner, RequestKind.EXPORT, by=helper))
    assert take_export(actor=Actor.for_user(helper), request=data_request)
    with pytest.raises(NotPermitted):
        take_export(actor=Actor.for_user(outsider.owner), request=data_request)
    actions = AuditEvent.objects.filter(action__startswith="data_request.").values_list(
        "action", "actor_id"
    )
    assert list(actions.order_by("id")) == [
        ("data_request.export_requested", helper.id), ("data_request.exported", helper.id)
    ]  # fmt: skip


def test_the_same_is_not_asked_twice_at_once(grace: User) -> None:
    ask(grace, RequestKind.EXPORT)
    with pytest.raises(Conflict):
        ask(grace, RequestKind.EXPORT)
    run_data_requests()
    assert ask(grace, RequestKind.EXPORT).is_open


def test_an_errand_is_done_once_and_given_up_after_three_tries(
    grace: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_request = ask(grace, RequestKind.EXPORT)

    def fail(*_: object, **__: object) -> bytes:
        raise RuntimeError("disk")

    monkeypatch.setattr(services, "write_export", fail)
    for _ in range(services.ATTEMPTS_MAX):
        with pytest.raises(RuntimeError):
            run_data_requests()
    assert done(data_request).state == RequestState.FAILED


def test_a_worker_that_died_is_followed_by_another(grace: User) -> None:
    data_request, now = ask(grace, RequestKind.EXPORT), timezone.now()
    assert services._begin(data_request.id, now) is not None
    services.run(data_request.id, now=now + timedelta(minutes=1))
    data_request.refresh_from_db()
    assert data_request.is_open  # the first may be at it still
    services.run(data_request.id, now=now + timedelta(minutes=6))
    data_request.refresh_from_db()
    assert data_request.state == RequestState.DONE


def test_erasing_goes_on_from_where_it_stopped(
    grace: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_request = ask(grace, RequestKind.ERASURE, grace.email)
    with monkeypatch.context() as patch:
        patch.setattr(erasure, "_anonymize", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_data_requests()
    assert not Membership.objects.filter(user=grace).exists()
    assert done(data_request).state == RequestState.DONE


def test_what_an_operator_erases_is_their_deed(org: SeededOrganization, grace: User) -> None:
    helper = operator("support")
    done(ask(grace, RequestKind.ERASURE, grace.email, by=helper))
    grace.refresh_from_db()
    assert grace.erased_at is not None
    by = {deed.action: deed.actor_id for deed in AuditEvent.objects.filter(actor_id=helper.id)}
    assert set(by) == {"data_request.erasure_requested", "data_request.erased", "member.removed"}


class TestAdmin:
    def client(self, role: str) -> Client:
        client = Client()
        client.force_login(operator(role))
        return client

    def form(self, user: User, kind: str, confirmation: str = "") -> dict[str, str]:
        return {"email": user.email, "kind": kind, "confirmation": confirmation}

    def test_support_asks_and_downloads(self, grace: User) -> None:
        client = self.client("support")
        reply = client.post(
            "/admin/data_requests/datasubjectrequest/add/", self.form(grace, "export")
        )
        assert reply.status_code == 302, reply.content.decode()
        data_request = DataSubjectRequest.objects.get()
        run_data_requests()
        page = client.get(
            row_url("admin:data_requests_datasubjectrequest_change", data_request.id), follow=True
        )
        assert "Download" in page.content.decode()
        reply = client.get(
            row_url("admin:data_requests_datasubjectrequest_export", data_request.id)
        )
        assert reply.headers["content-type"] == "application/zip"

    def test_erasing_takes_the_address_again(self, grace: User) -> None:
        client = self.client("support")
        client.post("/admin/data_requests/datasubjectrequest/add/", self.form(grace, "erasure"))
        assert not DataSubjectRequest.objects.exists()
        client.post(
            "/admin/data_requests/datasubjectrequest/add/", self.form(grace, "erasure", grace.email)
        )
        run_data_requests()
        assert DataSubjectRequest.objects.get().state == RequestState.DONE

    @pytest.mark.parametrize("role", ["viewer", "catalog", "finance"])
    def test_others_see_nothing(self, grace: User, role: str) -> None:
        data_request = done(ask(grace, RequestKind.EXPORT))
        client = self.client(role)
        ways = [
            row_url(f"admin:data_requests_datasubjectrequest_{verb}", data_request.id)
            for verb in ("change", "export")
        ]
        for path in (
            "/admin/data_requests/datasubjectrequest/",
            "/admin/data_requests/datasubjectrequest/add/",
            *ways,
        ):
            assert client.get(path, follow=True).status_code == 403, path

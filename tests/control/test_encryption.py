"""The vault has a key of control's own: the drill of a new pepper and of a new vault key."""

import dataclasses
import re
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from control import encryption
from control.accounts.models import User
from control.mail.delivery import build_message
from control.mail.services import send_mail
from control.outbox.delivery import Delivery
from control.outbox.models import OutboxMessage
from control.permissions import Actor
from control.sso.models import Protocol, SsoConnection
from control.sso.models import decrypted_secret as provider_secret
from control.sso.models import encrypted_secret as seal_for_provider
from control.webhooks.models import WebhookEndpoint, WebhookSecret
from control.webhooks.services import create_endpoint
from control.webhooks.signing import decrypted as endpoint_secret
from tests.fixtures.organizations import PASSWORD, SeededOrganization
from tests.fixtures.second_factor import code_of
from tests.fixtures.signing_in import sign_in

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
APP_SECRET = "JBSWY3DPEHPK3PXP"
OLD, NEW = "the vault key before 01234567", "the vault key after 0123456789"
LOGIN_CODE = "/accounts/2fa/authenticate/"


@dataclasses.dataclass(frozen=True)
class Sealed:
    """One of everything that the vault keeps."""

    operator: User
    endpoint: WebhookEndpoint
    secret: str
    connection: SsoConnection
    mail: OutboxMessage

    def opens(self, client: Client, code: str = "") -> None:
        """Use all of it, as those do who need it."""
        assert sign_in(client, self.operator.email, PASSWORD).status_code == 302
        reply = client.post(LOGIN_CODE, {"code": code or code_of(APP_SECRET)})
        assert reply.status_code == 302, reply.content.decode()
        assert client.get("/admin/").status_code == 200
        assert provider_secret(SsoConnection.objects.get(pk=self.connection.pk)) == "the provider's"
        kept = WebhookSecret.objects.get(endpoint=self.endpoint)
        assert endpoint_secret(self.endpoint, kept) == self.secret
        assert "https://console.example/live-link" in str(build_message(self.delivery()).body)

    def delivery(self) -> Delivery:
        row = OutboxMessage.objects.get(pk=self.mail.pk)
        return Delivery(row.kind, row.key, row.payload, row.organization_id, 1, timezone.now())


@pytest.fixture
def config(settings: Any) -> Iterator[Any]:
    """Set parts of the configuration."""

    def change(**parts: Any) -> None:
        settings.CONFIG = dataclasses.replace(settings.CONFIG, **parts)

    change(encryption_keys=(OLD,))
    yield change


@pytest.fixture
def sealed(org: SeededOrganization, config: Any) -> Sealed:
    operator = User.objects.create_superuser("op@penstock.example", PASSWORD)
    EmailAddress.objects.create(user=operator, email=operator.email, verified=True, primary=True)
    TOTP.activate(operator, APP_SECRET)
    RecoveryCodes.activate(operator)
    endpoint, secret = create_endpoint(
        actor=org.actor,
        organization=org.organization,
        url="https://1.1.1.1/hook",
        event_types=["api_key.created"],
    )
    connection = SsoConnection.objects.create(
        organization=org.organization,
        protocol=Protocol.OIDC,
        sealed_secret=seal_for_provider(org.organization, "the provider's"),
    )
    send_mail(
        template="invitation",
        to=["x@example.com"],
        context={
            "inviter": Actor.for_user(operator).name, "organization": "Acme", "role": "viewer",
            "accept_url": "https://console.example/live-link", "days": 7,
        },
        key="drill",
        organization_id=org.id,
        now=timezone.now(),
    )  # fmt: skip
    mail = OutboxMessage.objects.get(key__startswith="drill:")
    return Sealed(operator, endpoint, secret, connection, mail)


def rotate(**options: Any) -> str:
    out = StringIO()
    call_command("rotate_encryption", stdout=out, **options)
    return out.getvalue()


def test_another_pepper_locks_nobody_out(sealed: Sealed, config: Any) -> None:
    config(key_peppers=("another pepper 0123456789",))
    sealed.opens(Client())


def test_a_new_key_is_drilled_without_locking_anybody_out(sealed: Sealed, config: Any) -> None:
    config(encryption_keys=(NEW, OLD))
    sealed.opens(Client())
    told = rotate(dry_run=True)
    assert re.search(r"second factors: 2 of 2", told)
    assert "5 to encrypt anew" in told
    assert "5 to encrypt anew" in rotate(dry_run=True)  # which changed nothing
    assert "5 encrypted anew" in rotate()
    assert "0 encrypted anew" in rotate()
    config(encryption_keys=(NEW,))
    codes = RecoveryCodes(sealed.operator.authenticator_set.get(type="recovery_codes"))
    sealed.opens(Client(), code=codes.get_unused_codes()[0])  # a code of an app opens once


def test_an_interrupted_rotation_goes_on_where_it_was(sealed: Sealed, config: Any) -> None:
    class Interrupted(StringIO):
        def write(self, text: str) -> int:
            if "webhook" in text:
                raise KeyboardInterrupt
            return super().write(text)

    config(encryption_keys=(NEW, OLD))
    with pytest.raises(KeyboardInterrupt):
        call_command("rotate_encryption", stdout=Interrupted())
    rest = rotate()
    assert "5 encrypted anew" not in rest
    assert "second factors: 0 of 2" in rest
    config(encryption_keys=(NEW,))
    sealed.opens(Client())


def test_what_no_key_opens_is_named_and_left(sealed: Sealed, config: Any) -> None:
    WebhookSecret.objects.update(sealed="v1:bm9uc2Vuc2U=")
    config(encryption_keys=(NEW, OLD))
    with pytest.raises(CommandError, match="1 cannot be read"):
        rotate()
    assert WebhookSecret.objects.get().sealed == "v1:bm9uc2Vuc2U="
    config(encryption_keys=(NEW,))
    assert provider_secret(SsoConnection.objects.get()) == "the provider's"


def test_without_its_key_a_second_factor_is_refused_in_words(sealed: Sealed, config: Any) -> None:
    config(encryption_keys=(NEW,))
    client = Client()
    sign_in(client, sealed.operator.email, PASSWORD)
    reply = client.post(LOGIN_CODE, {"code": code_of(APP_SECRET)})
    assert reply.status_code == 200
    assert "cannot be checked" in reply.content.decode()


def test_what_a_pepper_sealed_before_is_read_with_it_as_an_old_key(config: Any) -> None:
    config(encryption_keys=("the pepper of before 0123",))
    kept = encryption.encrypt("a secret", purpose="test")
    config(encryption_keys=(NEW, "the pepper of before 0123"))
    assert encryption.decrypt(kept, purpose="test") == "a secret"
    anew = encryption.encrypt_anew(kept, purpose="test")
    assert anew is not None
    assert encryption.encrypt_anew(anew, purpose="test") is None
    with pytest.raises(encryption.DecryptionError):
        encryption.decrypt(kept, purpose="another")

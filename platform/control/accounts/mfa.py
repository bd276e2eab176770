"""The allauth MFA adapter and forms. Passkeys belong to the configured host, whatever host a
request names. Secrets of authenticator apps are encrypted in the database. Codes are counted as
passwords are, so that a person who knows the password cannot block the owner's codes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import structlog
from allauth.account.adapter import get_adapter
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.base.forms import AuthenticateForm, ReauthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.forms import (
    AddWebAuthnForm,
    AuthenticateWebAuthnForm,
    LoginWebAuthnForm,
    ReauthenticateWebAuthnForm,
)
from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import DatabaseError
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from control import encryption
from control.accounts import login_attempts
from control.accounts.login_attempts import too_many_attempts
from control.accounts.models import User
from control.accounts.trusted_devices import device_of
from control.encryption import VERSION, DecryptionError, decrypt, encrypt

ENCRYPTION_PURPOSE = "factor"
UNREADABLE = _(
    "Codes cannot be checked right now. Sign in with a passkey, or contact the operator of this"
    " platform."
)
log = structlog.get_logger(__name__)


def encrypt_anew(kept: str) -> str | None:
    """Return a stored secret encrypted with the newest key, None if it already is.

    Raises DecryptionError.
    """
    if not kept.startswith(VERSION):
        return encrypt(kept, purpose=ENCRYPTION_PURPOSE)
    return encryption.encrypt_anew(kept, purpose=ENCRYPTION_PURPOSE)


class MfaAdapter(DefaultMFAAdapter):
    """Encrypts factors and names passkeys."""

    def encrypt(self, text: str) -> str:
        """Return a secret as it is stored."""
        return encrypt(text, purpose=ENCRYPTION_PURPOSE)

    def decrypt(self, encrypted_text: str) -> str:
        """Return a stored secret in plain text; older ones were not encrypted."""
        if not encrypted_text.startswith(VERSION):
            return encrypted_text
        return decrypt(encrypted_text, purpose=ENCRYPTION_PURPOSE)

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """Return the relying party that passkeys are bound to."""
        return {"id": urlsplit(settings.CONFIG.console_url).hostname or "", "name": "Penstock"}

    def generate_authenticator_name(self, user: User, type: Authenticator.Type) -> str:
        """Return a name for the next passkey; its owner may change it."""
        count = Authenticator.objects.filter(user_id=user.pk, type=type).count()
        if count == 0:
            return gettext("Passkey")
        return gettext("Passkey %(number)d") % {"number": count + 1}


@contextmanager
def _invalid_credentials_refused() -> Iterator[None]:
    """Treat any parse failure as a wrong credential: it is CBOR in JSON from an untrusted client.
    Raises ValidationError."""
    try:
        yield
    except (ValidationError, DatabaseError):
        raise
    except Exception as error:
        raise ValidationError(gettext("That passkey is not valid. Try again.")) from error


class PasskeyCreateForm(AddWebAuthnForm):
    """Form for a new passkey. A passkey replaces the password, so it always verifies the user."""

    name = forms.CharField(
        label=_("Name"),
        max_length=60,
        required=False,
        help_text=_("So that you recognize it later."),
    )
    passwordless = forms.BooleanField(required=False, initial=True, widget=forms.HiddenInput)

    def clean_passwordless(self) -> bool:
        """Return True, whatever the client sent."""
        return True

    def clean(self) -> dict[str, Any]:
        """Return the fields after verifying the credential. Raises ValidationError."""
        with _invalid_credentials_refused():
            fields: dict[str, Any] = super().clean()
            return fields


class PasskeyCredentialMixin:
    """Parses the credential that a browser sends."""

    def clean_credential(self) -> Authenticator:
        """Return the passkey. Raises ValidationError."""
        with _invalid_credentials_refused():
            found: Authenticator = super().clean_credential()  # type: ignore[misc]
            return found


class PasskeyAuthenticateForm(PasskeyCredentialMixin, AuthenticateWebAuthnForm):
    """Form for a passkey after the password."""


class PasskeyLoginForm(PasskeyCredentialMixin, LoginWebAuthnForm):
    """Form for a passkey instead of a password."""


class PasskeyReauthenticateForm(PasskeyCredentialMixin, ReauthenticateWebAuthnForm):
    """Form for a passkey before factors change."""


class LimitedCodeMixin:
    """Counts a code attempt before the check, and releases it if the code is right."""

    user: User

    def clean_code(self) -> str:
        """Return the code. Raises ValidationError."""
        request, email = context.request, self.user.email
        address, device = get_adapter().get_client_ip(request), device_of(request, email)
        reservation = login_attempts.reserve(
            login_attempts.LoginAttempt(email, address, device, of="code"), time.time()
        )
        if reservation.is_refused:
            raise too_many_attempts("codes", reservation.wait_seconds)
        try:
            code: str = super().clean_code()  # type: ignore[misc]  # The form's check.
        except DecryptionError as error:
            log.exception("factor_unreadable", user_id=self.user.pk)
            raise ValidationError(UNREADABLE) from error
        login_attempts.release(reservation)
        return code


class MfaCodeForm(LimitedCodeMixin, AuthenticateForm):
    """Form for a code at sign-in."""


class MfaReauthenticateForm(LimitedCodeMixin, ReauthenticateForm):
    """Form for a code before factors change."""

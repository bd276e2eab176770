"""SSO connections, domains and identities of organizations, and their SCIM users and groups."""

import hashlib
import secrets

from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from control.accounts.models import EMAIL_MAX, User
from control.db.models import ID_MAX, new_id
from control.encryption import decrypt, encrypt
from control.organizations.models import Membership, Organization
from control.permissions import Role

DOMAIN_MAX = 253
URL_MAX = 2000
SUBJECT_MAX = 255
GRANTABLE = [Role.ADMIN, Role.BILLING, Role.DEVELOPER, Role.VIEWER]
"""Roles that a provider may grant, the most powerful first; only owners make owners."""
TOKEN_PREFIX = "pen_scim_"  # noqa: S105  (the prefix of every token)


def new_domain_id() -> str:
    return new_id("dom")


def new_scim_user_id() -> str:
    return new_id("scu")


def new_scim_group_id() -> str:
    return new_id("scg")


class Protocol(models.TextChoices):
    """The protocol of an identity provider."""

    OIDC = "oidc", _("OpenID Connect")
    SAML = "saml", _("SAML 2.0")


class SsoConnection(models.Model):
    """An organization's identity provider; an empty `protocol` means that none is set up.

    `provider` holds its description: OIDC's discovery document, or SAML's entity id, address and
    certificates. `role_map` maps values of `role_claim` to roles. A person without a mapped value
    gets `default_role`, or no membership if it is empty.
    """

    organization = models.OneToOneField(
        Organization, models.PROTECT, primary_key=True, related_name="sso"
    )
    protocol = models.CharField(max_length=8, choices=Protocol, blank=True)
    issuer = models.CharField(max_length=URL_MAX, blank=True)
    client_id = models.CharField(max_length=255, blank=True)
    sealed_secret = models.TextField(blank=True)
    metadata_url = models.CharField(max_length=URL_MAX, blank=True)
    provider = models.JSONField(default=dict)
    role_claim = models.CharField(max_length=200, blank=True)
    role_map = models.JSONField(default=dict)
    default_role = models.CharField(max_length=16, blank=True, choices=Role, default=Role.DEVELOPER)
    is_enforced = models.BooleanField(default=False)
    is_tried = models.BooleanField(default=False)
    """Whether an owner has signed in with it since it was set up, which enforcing it requires."""
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "sso_connection"
        constraints = [
            models.CheckConstraint(
                condition=Q(protocol__in=["", *Protocol.values]), name="sso_protocol_is_known"
            ),
            models.CheckConstraint(
                condition=Q(default_role__in=["", *GRANTABLE]), name="sso_default_role_is_grantable"
            ),
            models.CheckConstraint(
                condition=~Q(protocol="") | Q(is_enforced=False), name="sso_enforced_has_protocol"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_protocol_display() or 'nothing yet'} of {self.organization_id}"

    @property
    def is_set_up(self) -> bool:
        """Whether people can sign in with it."""
        return bool(self.protocol)


class SsoDomain(models.Model):
    """A domain that an organization claims; it is verified once its DNS holds the `token`."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_domain_id)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="sso_domains")
    name = models.CharField(max_length=DOMAIN_MAX)
    token = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    verified_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "sso_domain"
        constraints = [
            models.UniqueConstraint(
                fields=["name"],
                name="verified_domain_is_unique",
                condition=Q(verified_at__isnull=False),
            ),
            models.UniqueConstraint(fields=["organization", "name"], name="domain_is_named_once"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def record_name(self) -> str:
        """The name of the TXT record."""
        return f"_penstock.{self.name}"

    @property
    def record_value(self) -> str:
        """The value of the TXT record."""
        return f"penstock-domain={self.token}"


class SsoIdentity(models.Model):
    """A user's subject at an organization's provider, fixed at the first sign-in."""

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="+")
    user = models.ForeignKey(User, models.CASCADE, related_name="+")
    subject = models.CharField(max_length=SUBJECT_MAX)
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "sso_identity"
        constraints = [
            models.UniqueConstraint(fields=["organization", "subject"], name="subject_is_one"),
            models.UniqueConstraint(fields=["organization", "user"], name="identity_is_one"),
        ]

    def __str__(self) -> str:
        return self.subject


class ScimToken(models.Model):
    """The bearer token that a provider manages members with. `heir` is the member who takes the API
    keys of suspended users; without one these keys end."""

    organization = models.OneToOneField(
        Organization, models.PROTECT, primary_key=True, related_name="scim"
    )
    digest = models.CharField(max_length=64, unique=True)
    last_four = models.CharField(max_length=4)
    heir = models.ForeignKey(Membership, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "sso_scim_token"

    def __str__(self) -> str:
        return f"…{self.last_four}"


class ScimUser(models.Model):
    """A user as provisioned by SCIM. An active user has a membership; a suspended one has none and
    cannot sign in with SSO."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_scim_user_id)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="+")
    user = models.ForeignKey(User, models.CASCADE, related_name="+")
    user_name = models.CharField(max_length=EMAIL_MAX)
    external_id = models.CharField(max_length=SUBJECT_MAX, blank=True)
    given_name = models.CharField(max_length=100, blank=True)
    family_name = models.CharField(max_length=100, blank=True)
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "sso_scim_user"
        constraints = [
            models.UniqueConstraint(fields=["organization", "user"], name="scim_user_is_one"),
            models.UniqueConstraint("organization", Lower("user_name"), name="user_name_is_one"),
        ]

    def __str__(self) -> str:
        return self.user_name


class RemovedScimUser(models.Model):
    """A user whom the provider removed, until it adds the same person again."""

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="+")
    user = models.ForeignKey(User, models.CASCADE, related_name="+")
    external_id = models.CharField(max_length=SUBJECT_MAX, blank=True)
    removed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "sso_removed_scim_user"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "user"], name="removed_scim_user_is_one"
            ),
        ]

    def __str__(self) -> str:
        return self.external_id


class ScimGroup(models.Model):
    """A group of SCIM users; its name is looked up in the role map as a claim's value is."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_scim_group_id)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="+")
    display_name = models.CharField(max_length=200)
    external_id = models.CharField(max_length=SUBJECT_MAX, blank=True)
    members = models.ManyToManyField(ScimUser, related_name="groups", db_table="sso_scim_member")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "sso_scim_group"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "display_name"], name="group_name_is_one"
            ),
        ]

    def __str__(self) -> str:
        return self.display_name


def encrypted_secret(organization: Organization, secret: str) -> str:
    """Return a provider's client secret, encrypted for storage."""
    return encrypt(secret, purpose=purpose_of(organization.id))


def decrypted_secret(connection: SsoConnection) -> str:
    """Return a provider's client secret. Raises DecryptionError if the key is gone."""
    return decrypt(connection.sealed_secret, purpose=purpose_of(connection.organization_id))


def new_token() -> str:
    """Return a fresh SCIM bearer token with 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def token_digest(token: str) -> str:
    """Return the digest to store of a bearer token."""
    return hashlib.sha256(token.encode()).hexdigest()


def purpose_of(organization_id: str) -> str:
    """Return the encryption purpose of a provider's client secret."""
    return f"OIDC secret of {organization_id}"

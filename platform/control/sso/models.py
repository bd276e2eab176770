"""Identity providers of organizations, their domains, whom they brought, and SCIM."""

import hashlib
import secrets

from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone

from control.accounts.models import EMAIL_MAX, User
from control.db.models import ID_MAX, new_id
from control.encryption import decrypt, encrypt
from control.organizations.models import Membership, Organization
from control.permissions import Role

DOMAIN_MAX = 253
URL_MAX = 2000
SUBJECT_MAX = 255
GRANTABLE = [Role.ADMIN, Role.BILLING, Role.DEVELOPER, Role.VIEWER]
"""What a provider may make of people, the most powerful first; owners are made by owners."""
TOKEN_PREFIX = "pen_scim_"  # noqa: S105  (what every token begins with)


def new_domain_id() -> str:
    """Return a fresh id of a domain."""
    return new_id("dom")


def new_scim_user_id() -> str:
    """Return a fresh id of a user in SCIM."""
    return new_id("scu")


def new_scim_group_id() -> str:
    """Return a fresh id of a group in SCIM."""
    return new_id("scg")


class Protocol(models.TextChoices):
    """How a provider is spoken to."""

    OIDC = "oidc", "OpenID Connect"
    SAML = "saml", "SAML 2.0"


class SsoConnection(models.Model):
    """How members of an organization sign in elsewhere. Without a `protocol` none is set up yet.

    `provider` is what was read of it: OIDC's discovery document, or SAML's entity id, address and
    certificates. `role_map` gives a role by a value of `role_claim`; a person without any of them
    gets `default_role`, or no seat where it is empty.
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
    """Whether an owner came in by it since it was last set up: before, it is not enforced."""
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
        """Whether people can sign in by it."""
        return bool(self.protocol)


class SsoDomain(models.Model):
    """A domain that an organization says is its own; proved once its DNS holds the `token`."""

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
        """What the TXT record holds."""
        return f"penstock-domain={self.token}"


class SsoIdentity(models.Model):
    """Who a person is to an organization's provider: from the first sign-in on the same subject."""

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
    """The bearer token by which a provider keeps an organization's members, and who takes the API
    keys of whoever it suspends (without an heir they end)."""

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
    """A person as SCIM knows them. While `is_active`, they have a seat; suspended, they have none
    and cannot come in by SSO."""

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


class ScimGroup(models.Model):
    """A group of people as SCIM knows it; its name gives a role as a value of the role map does."""

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
    """Return what is stored of a provider's secret."""
    return encrypt(secret, purpose=purpose_of(organization.id))


def decrypted_secret(connection: SsoConnection) -> str:
    """Return a provider's secret. Raises DecryptionError where its vault key is gone."""
    return decrypt(connection.sealed_secret, purpose=purpose_of(connection.organization_id))


def new_token() -> str:
    """Return a fresh bearer token of SCIM: 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def token_digest(token: str) -> str:
    """Return what is stored of a bearer token."""
    return hashlib.sha256(token.encode()).hexdigest()


def purpose_of(organization_id: str) -> str:
    """Return what the vault knows a provider's secret by."""
    return f"OIDC secret of {organization_id}"

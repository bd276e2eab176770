"""An organization's identity provider, the domains it proved, and whom the provider told us of.

A domain is verified for one organization at a time, which the database keeps.
"""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone

from control.db.models import new_id
from control.tenants.models import EMAIL_MAX, ID_MAX, Membership, Organization, Role, User

DOMAIN_MAX = 253
URL_MAX = 2000
SUBJECT_MAX = 255
GRANTABLE = [Role.ADMIN, Role.BILLING, Role.DEVELOPER, Role.VIEWER]
"""What a provider may make of people, the most powerful first; owners are made by owners."""


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


class Connection(models.Model):
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


class Domain(models.Model):
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


class Identity(models.Model):
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


class ScimAccess(models.Model):
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
        db_table = "sso_scim_access"

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

"""API keys, stored by their digests; no secret is ever stored."""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from control.accounts.models import NAME_MAX, User
from control.db.models import ID_MAX, CredentialState, credential_state, new_id
from control.organizations.models import Organization, Project
from control.permissions import KEY_PERMISSIONS, Permission
from serving.contract import api_key as secret_form

PEPPER_ID_MAX = 8
PREFIX_CHARACTERS = 13
"""`pen_live_` and the first four random characters."""
FORM_TOKEN_MAX = 64


def new_key_id() -> str:
    return new_id("key")


class ApiKeyKind(models.TextChoices):
    """The origin of a key: made by a person, or by the console for its playground."""

    STANDARD = "standard", _("Standard")
    PLAYGROUND = "playground", _("Playground")


class Scope(StrEnum):
    """A scope that is no single permission: the gateway's API, or the whole management API."""

    INFERENCE = "inference"
    MANAGE = "manage"


SCOPES = (*map(str, Scope), *(str(each) for each in Permission if each in KEY_PERMISSIONS))
"""Every scope, in the order in which a key's are stored. A permission gives that much of the
management API."""


def permissions_of(scopes: Collection[str]) -> frozenset[Permission]:
    """Return the permissions that scopes give in the management API. Whichever it gives, a key also
    reads the organization."""
    if Scope.MANAGE in scopes:
        return KEY_PERMISSIONS
    permissions = frozenset(each for each in KEY_PERMISSIONS if each in scopes)
    return permissions | {Permission.ORGANIZATION_READ} if permissions else permissions


def default_scopes() -> list[str]:
    return [Scope.INFERENCE]


class ApiKey(models.Model):
    """A key of a project. None means any for `allowed_models` (public ids) and `allowed_networks`
    (CIDR). The spending limit is per UTC month."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_key_id)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="keys")
    project = models.ForeignKey(Project, models.PROTECT, related_name="keys")
    name = models.CharField(max_length=NAME_MAX)
    kind = models.CharField(max_length=16, choices=ApiKeyKind, default=ApiKeyKind.STANDARD)
    digest = models.CharField(max_length=64, unique=True)
    pepper_id = models.CharField(max_length=PEPPER_ID_MAX, blank=True)
    """Id of the pepper in the digest; empty for keys older than these ids."""
    prefix = models.CharField(max_length=16)
    last_four = models.CharField(max_length=4)
    form_token = models.CharField(max_length=FORM_TOKEN_MAX, null=True, blank=True)  # noqa: DJ001
    """Token of the form that created the key, so that a form sent twice creates one key."""
    scopes = ArrayField(models.CharField(max_length=32), default=default_scopes)
    allowed_models = ArrayField(models.CharField(max_length=200), null=True, blank=True)
    allowed_networks = ArrayField(models.CharField(max_length=64), null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    spend_limit_nanos = models.BigIntegerField(null=True, blank=True)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "api_keys_api_key"
        verbose_name = "API key"
        constraints = [
            models.CheckConstraint(condition=Q(scopes__len__gte=1), name="key_has_a_scope"),
            models.CheckConstraint(
                condition=Q(spend_limit_nanos__isnull=True) | Q(spend_limit_nanos__gte=0),
                name="key_limit_not_negative",
            ),
            models.UniqueConstraint(
                fields=["organization", "form_token"], name="form_makes_one_key"
            ),
            models.UniqueConstraint(
                fields=["project", "created_by"],
                name="playground_key_is_unique",
                condition=Q(kind="playground", revoked_at__isnull=True),
            ),
        ]
        indexes = [models.Index(fields=["organization", "created_at"], name="key_by_organization")]

    def __str__(self) -> str:
        return f"{self.name} ({self.masked})"

    @property
    def masked(self) -> str:
        """The part of the secret that may be shown."""
        return f"{self.prefix}…{self.last_four}"

    @property
    def permissions(self) -> frozenset[Permission]:
        """The permissions of the key in the management API."""
        return permissions_of(self.scopes)

    def state(self, now: datetime) -> CredentialState:
        """Return whether the key works at `now`, and else why not."""
        return credential_state(self, now)


class PreviousSecret(models.Model):
    """A replaced secret, which still authenticates as the key until `ends_at`."""

    key = models.ForeignKey(ApiKey, models.PROTECT, related_name="old_secrets")
    digest = models.CharField(max_length=64, unique=True)
    pepper_id = models.CharField(max_length=PEPPER_ID_MAX, blank=True)
    prefix = models.CharField(max_length=16)
    last_four = models.CharField(max_length=4)
    made_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    ends_at = models.DateTimeField()

    class Meta:
        db_table = "api_keys_previous_secret"

    def __str__(self) -> str:
        return self.masked

    @property
    def masked(self) -> str:
        """The part of the secret that may be shown."""
        return f"{self.prefix}…{self.last_four}"


def digest_of(secret: str) -> str:
    """Return the digest to store and publish of a new secret, with the newest pepper."""
    return digests_of(secret)[0]


def digests_of(secret: str) -> list[str]:
    """Return the digests of a secret with each pepper, the newest first."""
    return [secret_form.digest(secret, pepper.encode()) for pepper in settings.CONFIG.key_peppers]


def newest_pepper_id() -> str:
    """Return the id of the pepper that `digest_of` uses."""
    return secret_form.pepper_id(settings.CONFIG.key_peppers[0])

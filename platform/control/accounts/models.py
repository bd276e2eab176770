"""Users, identified by email address, how they are found, and the hashing of their passwords."""

from collections.abc import Iterable
from typing import Any

from django.apps import apps
from django.contrib.auth.hashers import Argon2PasswordHasher
from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.db import models
from django.db.models import Q, QuerySet
from django.db.models.functions import Lower
from django.utils import timezone

from control.audit.pseudonyms import NameDirectory
from control.db.models import ID_MAX, get_or_not_found, new_id
from control.permissions import OperatorRole, Permission, operator_can

EMAIL_MAX = 254
NAME_MAX = 100


OPERATOR_ROLES = [role.value for role in OperatorRole]
OPERATOR_ROLE_CHOICES = [(role, role.capitalize()) for role in OPERATOR_ROLES]


def new_user_id() -> str:
    """Return a fresh user id, without an underscore: allauth's password-reset URL accepts letters
    and digits only."""
    return new_id("user").replace("_", "")


class UserManager(BaseUserManager["User"]):
    """Creates users; email addresses are stored in lower case."""

    def create_user(self, email: str, password: str | None = None, **fields: object) -> "User":
        """Create a user, who cannot log in without a password until they reset it."""
        user = self.model(email=email.lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: object) -> "User":
        """Create an operator with the role `owner`."""
        return self.create_user(email, password, operator_role=OperatorRole.OWNER, **fields)


class User(AbstractBaseUser, PermissionsMixin):
    """A person, identified by email address; an operator of the platform has an `operator_role`.

    The role alone decides Django's permissions. `is_superuser`, groups and single permissions of
    the base class are ignored."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_user_id)
    email = models.EmailField(unique=True, max_length=EMAIL_MAX)
    name = models.CharField(max_length=NAME_MAX, blank=True)
    is_active = models.BooleanField(default=True)
    operator_role = models.CharField(max_length=16, blank=True, choices=OPERATOR_ROLE_CHOICES)
    created_at = models.DateTimeField(default=timezone.now)
    erased_at = models.DateTimeField(null=True, blank=True)
    """When the personal data was erased; the row remains for the audit events that name its id."""

    objects = UserManager()

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS = []

    class Meta:
        db_table = "accounts_user"
        constraints = [
            models.CheckConstraint(condition=Q(email=Lower("email")), name="email_is_lower_case"),
            models.CheckConstraint(
                condition=Q(operator_role__in=["", *OPERATOR_ROLES]), name="operator_role_is_known"
            ),
        ]

    def __str__(self) -> str:
        return self.email

    @property
    def is_staff(self) -> bool:
        """Whether the user may open Django's admin: operators only."""
        return bool(self.operator_role)

    def has_perm(self, perm: str, obj: object = None) -> bool:
        """Return whether the operator's role allows `app.verb_model`. The app's config names the
        permission: `view_permission` (default `platform:read`) or `change_permission` (default
        `operators:write`)."""
        app_label, _, verb = perm.partition(".")
        config = apps.get_app_config(app_label)
        if verb.startswith("view_"):
            permission = getattr(config, "view_permission", Permission.PLATFORM_READ)
        else:
            permission = getattr(config, "change_permission", Permission.OPERATORS_WRITE)
        return self.is_active and operator_can(self.operator_role, permission)

    def has_module_perms(self, app_label: str) -> bool:
        """Return whether the admin lists an app: all apps for every operator."""
        return self.is_active and operator_can(self.operator_role, Permission.PLATFORM_READ)


class FormerAddress(models.Model):
    """An address that a person gave up, by which stored emails and invitations are theirs until
    then: later ones belong to the address's next holder."""

    user = models.ForeignKey(User, models.CASCADE, related_name="former_addresses")
    email = models.EmailField(max_length=EMAIL_MAX)
    until = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "accounts_former_address"
        indexes = [models.Index(fields=["email", "until"], name="former_address_by_email")]

    def __str__(self) -> str:
        return self.email


class Argon2Hasher(Argon2PasswordHasher):
    """Argon2id at OWASP's minimum (19 MiB, two passes), which takes 20 ms of a core.

    Django's defaults take 100 MiB and eight threads for each sign-in, and its PBKDF2 took 240 ms,
    so that two people who signed in at once waited half a second.
    """

    memory_cost = 19_456
    time_cost = 2
    parallelism = 1


def user_by_email(email: str) -> User | None:
    """Return the user with an email address."""
    return User.objects.filter(email=email.lower()).first()


def locked_user(user_id: str) -> User:
    """Return a user with their row locked until the transaction ends. Raises ObjectNotFound."""
    return get_or_not_found(User.objects.select_for_update(no_key=True), "person", pk=user_id)


def has_verified_email(user: User) -> bool:
    """Return whether the user has verified an address."""
    return bool(user.emailaddress_set.filter(verified=True).exists())  # type: ignore[attr-defined]


class UserDirectory(NameDirectory):
    """Email addresses of users."""

    def references(self, emails: Iterable[str]) -> dict[str, str]:
        """Return the ids of the users with these addresses (lower case), by address."""
        return dict(User.objects.filter(email__in=list(emails)).values_list("email", "id"))

    def names(self, references: Iterable[str]) -> dict[str, str]:
        """Return the users' addresses by id, without erased users."""
        users = User.objects.filter(id__in=list(references), erased_at=None)
        return dict(users.values_list("id", "email"))

    def search(self, text: str) -> QuerySet[Any, str]:
        """Return the ids of users whose address or name contains a text."""
        is_named = Q(email__icontains=text) | Q(name__icontains=text)
        return User.objects.filter(is_named, erased_at=None).values_list("id", flat=True)

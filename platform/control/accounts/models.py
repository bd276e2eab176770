"""People: users, known by their e-mail address, and how their passwords are hashed."""

from django.apps import apps
from django.contrib.auth.hashers import Argon2PasswordHasher
from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone

from control.db.models import ID_MAX, new_id
from control.permissions import OperatorRole, Permission, operator_can

EMAIL_MAX = 254
NAME_MAX = 100


OPERATOR_ROLES = [role.value for role in OperatorRole]
OPERATOR_ROLE_CHOICES = [(role, role.capitalize()) for role in OPERATOR_ROLES]


def new_user_id() -> str:
    """Return a fresh id of a user: no underscore, since allauth's password-reset address takes
    letters and digits only."""
    return new_id("user").replace("_", "")


class UserManager(BaseUserManager["User"]):
    """Makes users, whose e-mail address is kept in lower case."""

    def create_user(self, email: str, password: str | None = None, **fields: object) -> "User":
        """Add a person; without a password they cannot log in until they reset it."""
        user = self.model(email=email.lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: object) -> "User":
        """Add an operator who may do everything."""
        return self.create_user(email, password, operator_role=OperatorRole.OWNER, **fields)


class User(AbstractBaseUser, PermissionsMixin):
    """A person, known by e-mail address; one with an `operator_role` runs the platform.

    Of Django's permissions the role decides: `is_superuser`, groups and single permissions, which
    Django's base class brings, are not asked."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_user_id)
    email = models.EmailField(unique=True, max_length=EMAIL_MAX)
    name = models.CharField(max_length=NAME_MAX, blank=True)
    is_active = models.BooleanField(default=True)
    operator_role = models.CharField(max_length=16, blank=True, choices=OPERATOR_ROLE_CHOICES)
    created_at = models.DateTimeField(default=timezone.now)
    erased_at = models.DateTimeField(null=True, blank=True)
    """From then on the row is an id that audit events name, and nobody's."""

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
        """Whether they run the platform: what Django's admin asks."""
        return bool(self.operator_role)

    def has_perm(self, perm: str, obj: object = None) -> bool:
        """Tell whether the operator's role holds what `app.verb_model` takes, as the app's config
        says: `change_permission` (without one, an owner's) and, where not every operator may look
        at its rows, `view_permission`."""
        app_label, _, verb = perm.partition(".")
        config = apps.get_app_config(app_label)
        if verb.startswith("view_"):
            wanted = getattr(config, "view_permission", Permission.PLATFORM_READ)
        else:
            wanted = getattr(config, "change_permission", Permission.OPERATORS_WRITE)
        return self.is_active and operator_can(self.operator_role, wanted)

    def has_module_perms(self, app_label: str) -> bool:
        """Tell whether the admin lists an app: every operator may look at all."""
        return self.is_active and operator_can(self.operator_role, Permission.PLATFORM_READ)


class Argon2Hasher(Argon2PasswordHasher):
    """Argon2id at the least that OWASP allows (19 MiB, two passes), which takes 20 ms of a core.

    Django's own figures take 100 MiB and eight threads for each sign-in, and its PBKDF2 took 240
    ms, so that two people who signed in at once waited half a second.
    """

    memory_cost = 19_456
    time_cost = 2
    parallelism = 1

"""Rate limits as operators and members set them, who stands in which tier, and who serves."""

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from control.catalog.models import Model
from control.db.models import new_id
from control.tenants.models import ID_MAX, NAME_MAX, Organization
from serving.contract.records import Limits
from serving.contract.units import TIERS, Tier

LIMIT_MAX = 10**9
FIGURES = (
    "requests_per_minute",
    "input_tokens_per_minute",
    "output_tokens_per_minute",
    "concurrent_requests",
)
"""The four limits, as the contract names them."""


def new_limit_tier_id() -> str:
    """Return a fresh id of a limit tier."""
    return new_id("tier")


class LimitField(models.PositiveIntegerField):
    """How much, at least 1; empty is no limit."""

    def __init__(self, *args: object, **options: object) -> None:
        options |= {"null": True, "blank": True}
        options["validators"] = [MinValueValidator(1), MaxValueValidator(LIMIT_MAX)]
        super().__init__(*args, **options)  # type: ignore[arg-type]


def positive(name: str) -> models.CheckConstraint:
    """Return the constraint that no limit of a row is 0, which no gateway would read."""
    condition = Q()
    for figure in FIGURES:
        condition &= Q(**{f"{figure}__isnull": True}) | Q(
            **{f"{figure}__gte": 1, f"{figure}__lte": LIMIT_MAX}
        )
    return models.CheckConstraint(condition=condition, name=name)


class Limited(models.Model):
    """A row of the four limits. Input tokens are those that were not cached."""

    requests_per_minute = LimitField()
    input_tokens_per_minute = LimitField()
    output_tokens_per_minute = LimitField()
    concurrent_requests = LimitField()

    class Meta:
        abstract = True

    @property
    def limits(self) -> Limits:
        """The row as gateways need it."""
        return Limits(**{figure: getattr(self, figure) for figure in FIGURES})


class LimitTier(Limited):
    """What organizations may do that have paid so much: each stands in the highest tier that it
    reaches, by itself."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_limit_tier_id)
    name = models.CharField(max_length=NAME_MAX, unique=True)
    paid_min_nanos = models.BigIntegerField(unique=True)
    service_tiers = ArrayField(
        models.CharField(max_length=20), null=True, blank=True,
        help_text=f"Which its organizations may use, one per line: {', '.join(TIERS)}. Empty: all.",
    )  # fmt: skip
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "limits_tier"
        ordering = ["paid_min_nanos"]
        constraints = [
            positive("tier_limits_positive"),
            models.CheckConstraint(
                condition=Q(paid_min_nanos__gte=0), name="tier_paid_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def usable_service_tiers(self) -> list[Tier]:
        """Those that its organizations may use, the most urgent first."""
        named = self.service_tiers
        return [tier for tier in TIERS if named is None or tier in named]


class TierModelLimits(Limited):
    """What a tier allows on one model, besides what it allows on all together."""

    tier = models.ForeignKey(LimitTier, models.CASCADE, related_name="model_limits")
    model = models.ForeignKey(Model, models.CASCADE, related_name="+")

    class Meta:
        db_table = "limits_tier_model"
        verbose_name_plural = "tier model limits"
        constraints = [
            positive("tier_model_limits_positive"),
            models.UniqueConstraint(fields=["tier", "model"], name="tier_model_is_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.tier} on {self.model}"


class OrganizationLimits(Limited):
    """What an operator allows an organization instead of a whole row of its tier: the row of all
    models, or that of one."""

    organization = models.ForeignKey(Organization, models.CASCADE, related_name="own_limits")
    model = models.ForeignKey(
        Model, models.CASCADE, null=True, blank=True, related_name="+",
        help_text="Empty: all models together.",
    )  # fmt: skip
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "limits_organization"
        verbose_name = "limits of an organization"
        verbose_name_plural = "limits of organizations"
        constraints = [
            positive("organization_limits_positive"),
            models.UniqueConstraint(
                fields=["organization", "model"],
                name="organization_limits_unique",
                nulls_distinct=False,
            ),
        ]

    def __str__(self) -> str:
        return f"{self.organization} on {self.model or 'all models'}"


class OwnLimits(Limited):
    """What members allow a project or a key of theirs, within what the organization may do."""

    limited_id = models.CharField(primary_key=True, max_length=ID_MAX)
    """The project or the key."""
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="+")

    class Meta:
        db_table = "limits_own"
        verbose_name_plural = "own limits"
        constraints = [positive("own_limits_positive")]

    def __str__(self) -> str:
        return self.limited_id


class Standing(models.Model):
    """What an organization has paid so far, as billing says, and the tier that this reaches."""

    organization = models.OneToOneField(
        Organization, models.CASCADE, primary_key=True, related_name="limit_standing"
    )
    paid_nanos = models.BigIntegerField(default=0)
    tier = models.ForeignKey(LimitTier, models.PROTECT, null=True, related_name="standings")
    since = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "limits_standing"

    def __str__(self) -> str:
        return f"{self.organization_id} in {self.tier_id}"

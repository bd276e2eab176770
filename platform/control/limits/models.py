"""Rate limits set by operators and members, usage tiers with the organizations in them, and the
spending limits other than hard monthly ones."""

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from control.accounts.models import NAME_MAX
from control.catalog.models import Model
from control.db.models import ID_MAX, new_id
from control.organizations.models import Organization
from serving.contract.records import RateLimitSettings
from serving.contract.units import TIERS, Tier

LIMIT_MAX = 10**9
RATE_LIMIT_FIELDS = (
    "requests_per_minute",
    "input_tokens_per_minute",
    "output_tokens_per_minute",
    "concurrent_requests",
)
"""The four limits, named as in the contract."""


def new_usage_tier_id() -> str:
    return new_id("tier")


class LimitField(models.PositiveIntegerField):
    """A limit of at least 1; empty means no limit."""

    def __init__(self, *args: object, **options: object) -> None:
        options |= {"null": True, "blank": True}
        options["validators"] = [MinValueValidator(1), MaxValueValidator(LIMIT_MAX)]
        super().__init__(*args, **options)  # type: ignore[arg-type]


def positive(name: str) -> models.CheckConstraint:
    """Return the constraint that no limit of a row is 0, which gateways do not accept."""
    condition = Q()
    for figure in RATE_LIMIT_FIELDS:
        condition &= Q(**{f"{figure}__isnull": True}) | Q(
            **{f"{figure}__gte": 1, f"{figure}__lte": LIMIT_MAX}
        )
    return models.CheckConstraint(condition=condition, name=name)


class RateLimitFields(models.Model):
    """The four limits in a row. Input tokens are uncached ones."""

    requests_per_minute = LimitField()
    input_tokens_per_minute = LimitField()
    output_tokens_per_minute = LimitField()
    concurrent_requests = LimitField()

    class Meta:
        abstract = True

    @property
    def limits(self) -> RateLimitSettings:
        """The row as a contract record for gateways."""
        return RateLimitSettings(**{figure: getattr(self, figure) for figure in RATE_LIMIT_FIELDS})


class UsageTier(RateLimitFields):
    """The limits of organizations that have paid a total amount: each is automatically in the
    highest tier that it reaches."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_usage_tier_id)
    name = models.CharField(max_length=NAME_MAX, unique=True)
    paid_min_nanos = models.BigIntegerField(unique=True)
    service_tiers = ArrayField(
        models.CharField(max_length=20), null=True, blank=True,
        help_text=f"Which its organizations may use, one per line: {', '.join(TIERS)}. Empty: all.",
    )  # fmt: skip
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "limits_usage_tier"
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
        """The service tiers that its organizations may use, the most urgent first."""
        named = self.service_tiers
        return [tier for tier in TIERS if named is None or tier in named]


class UsageTierModelLimit(RateLimitFields):
    """A tier's limits on one model, in addition to those on all models together."""

    tier = models.ForeignKey(UsageTier, models.CASCADE, related_name="model_limits")
    model = models.ForeignKey(Model, models.CASCADE, related_name="+")

    class Meta:
        db_table = "limits_usage_tier_model_limit"
        verbose_name_plural = "tier model limits"
        constraints = [
            positive("tier_model_limits_positive"),
            models.UniqueConstraint(fields=["tier", "model"], name="tier_model_is_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.tier} on {self.model}"

    @property
    def edits_owner_id(self) -> str:
        """The id for `lock_edits`."""
        return self.tier_id


class RateLimitOverride(RateLimitFields):
    """An organization's limits set by an operator, in place of a whole row of its tier: the row of
    all models, or of one."""

    organization = models.ForeignKey(Organization, models.CASCADE, related_name="own_limits")
    model = models.ForeignKey(
        Model, models.CASCADE, null=True, blank=True, related_name="+",
        help_text=_("Empty: all models together."),
    )  # fmt: skip
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "limits_rate_limit_override"
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


class SelfImposedRateLimit(RateLimitFields):
    """Limits that members set for a project or a key, within the organization's limits."""

    limited_id = models.CharField(primary_key=True, max_length=ID_MAX)
    """The project or the key."""
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="+")

    class Meta:
        db_table = "limits_self_imposed_rate_limit"
        verbose_name_plural = "own limits"
        constraints = [positive("own_limits_positive")]

    def __str__(self) -> str:
        return self.limited_id


class OrganizationUsageTier(models.Model):
    """The amount that an organization has paid, as billing reports it, and the tier that it
    reaches."""

    organization = models.OneToOneField(
        Organization, models.CASCADE, primary_key=True, related_name="limit_standing"
    )
    paid_nanos = models.BigIntegerField(default=0)
    tier = models.ForeignKey(UsageTier, models.PROTECT, null=True, related_name="standings")
    since = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "limits_organization_usage_tier"

    def __str__(self) -> str:
        return f"{self.organization_id} in {self.tier_id}"

    @property
    def has_paid(self) -> bool:
        """Whether it has paid anything that it did not get back."""
        return self.paid_nanos > 0


class LimitPeriod(models.TextChoices):
    """The period after which a limit starts anew, at midnight UTC; weeks begin on Monday."""

    MONTH = "month", _("Month")
    WEEK = "week", _("Week")
    DAY = "day", _("Day")


class SpendingLimit(models.Model):
    """The amount that an organization, a project or a key may spend in a period. A hard limit
    refuses requests beyond it, a soft one only notifies.

    A hard monthly limit is not stored here but in its owner's row (`spend_limit_nanos`).
    """

    budget_id = models.CharField(max_length=ID_MAX + 16, primary_key=True, db_collation="C")
    """`serving.contract.budget.limit_budget_id`: one limit per owner and period."""
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="spend_limits")
    limited_id = models.CharField(max_length=ID_MAX)
    """The organization, the project or the key."""
    period = models.CharField(max_length=8, choices=LimitPeriod)
    limit_nanos = models.BigIntegerField()
    is_hard = models.BooleanField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "limits_spending_limit"
        constraints = [
            models.CheckConstraint(
                condition=Q(limit_nanos__gte=0), name="spend_limit_not_negative"
            ),
            models.CheckConstraint(
                condition=Q(period__in=["week", "day"]) | Q(period="month", is_hard=False),
                name="hard_month_is_its_owners",
            ),
            models.UniqueConstraint(fields=["limited_id", "period"], name="spend_limit_is_unique"),
        ]

    def __str__(self) -> str:
        return self.budget_id

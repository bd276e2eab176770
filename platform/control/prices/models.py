"""Price books: draft, then published with an effective time, then never changed (migrations/0002
holds the triggers that see to it). Prices are nano-dollars per million tokens."""

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from control.catalog.models import Variant
from control.ids import new_id
from control.tenants.models import ID_MAX, NAME_MAX, User


def new_book_id() -> str:
    """Return a fresh id of a price book."""
    return new_id("book")


def new_price_id() -> str:
    """Return a fresh id of a price."""
    return new_id("price")


class PriceBook(models.Model):
    """A dated set of prices; published ones are in force from `effective_at` on."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_book_id)
    name = models.CharField(max_length=NAME_MAX)
    created_at = models.DateTimeField(default=timezone.now)
    effective_at = models.DateTimeField(null=True, blank=True)
    published_at = models.DateTimeField(null=True, blank=True)
    published_by = models.ForeignKey(User, models.PROTECT, null=True, blank=True, related_name="+")

    class Meta:
        db_table = "prices_price_book"
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(published_at__isnull=True) | Q(effective_at__isnull=False),
                name="published_book_is_dated",
            ),
            models.UniqueConstraint(
                fields=["effective_at"],
                name="one_book_takes_effect_at_a_time",
                condition=Q(published_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_published(self) -> bool:
        """Whether the book is closed to changes."""
        return self.published_at is not None


class Tier(models.TextChoices):
    """How urgent a request is."""

    PRIORITY = "priority", "Priority"
    STANDARD = "standard", "Standard"
    BATCH = "batch", "Batch"


class Price(models.Model):
    """Three meters of one variant and tier; cached input is never dearer than input."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_price_id)
    book = models.ForeignKey(PriceBook, models.PROTECT, related_name="prices")
    variant = models.ForeignKey(Variant, models.PROTECT, related_name="prices")
    tier = models.CharField(max_length=16, choices=Tier, default=Tier.STANDARD)
    input_nanos = models.BigIntegerField()
    cached_input_nanos = models.BigIntegerField()
    output_nanos = models.BigIntegerField()

    class Meta:
        db_table = "prices_price"
        constraints = [
            models.UniqueConstraint(fields=["book", "variant", "tier"], name="price_is_unique"),
            models.CheckConstraint(condition=Q(tier__in=Tier.values), name="price_tier_is_known"),
            models.CheckConstraint(
                condition=Q(cached_input_nanos__gte=0, output_nanos__gte=0)
                & Q(input_nanos__gte=F("cached_input_nanos")),
                name="cached_not_dearer_than_input",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.variant} {self.tier}"

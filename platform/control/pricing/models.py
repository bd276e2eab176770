"""Price books: drafted, then published with an effective time, then never changed, except that one
may be cancelled before that time (triggers of migrations/0001_initial enforce this). Prices are
nano-dollars per million tokens."""

from datetime import datetime
from functools import cached_property

from django.core.validators import MaxValueValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.expressions import RawSQL
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from control.accounts.models import NAME_MAX, User
from control.catalog.models import Variant
from control.db.models import ID_MAX, new_id
from control.organizations.models import Organization

INPUT_TOKENS_MAX = 10**9
"""The contract's largest token count."""
PRICE_BOUNDS = [MaxValueValidator(10**15)]
"""The contract's highest price, in nano-dollars per million tokens."""


def new_book_id() -> str:
    return new_id("book")


def new_price_id() -> str:
    return new_id("price")


class BookState(models.TextChoices):
    """Whether a price book decides what requests cost."""

    DRAFT = "draft", _("Draft")
    SCHEDULED = "scheduled", _("Scheduled")
    ACTIVE = "active", _("Active")
    SUPERSEDED = "superseded", _("Superseded")
    EXPIRED = "expired", _("Expired")
    CANCELLED = "cancelled", _("Cancelled")


# When the last of a book's prices is replaced by a newer book for the same organization; null while
# one of them has no successor.
SUPERSEDED_AT = """(
    SELECT CASE WHEN count(*) = count(next_at) THEN max(next_at) END FROM (
        SELECT (
            SELECT min(later.effective_at) FROM pricing_price_book AS later
            JOIN pricing_price AS same ON same.book_id = later.id
            WHERE later.organization_id IS NOT DISTINCT FROM pricing_price_book.organization_id
              AND later.published_at IS NOT NULL AND later.cancelled_at IS NULL
              AND later.effective_at > pricing_price_book.effective_at
              AND (same.variant_id, same.tier) = (price.variant_id, price.tier)
        ) AS next_at
        FROM pricing_price AS price WHERE price.book_id = pricing_price_book.id
    ) AS replacement
)"""


def superseded_at() -> RawSQL:
    """Return the expression of when newer books have replaced all of a book's prices."""
    return RawSQL(SUPERSEDED_AT, [], models.DateTimeField(null=True))  # noqa: S611 - a constant


class PriceBook(models.Model):
    """A dated set of prices; a published book is in force from `effective_at` on.

    A book with an organization is a contract: it applies to that organization alone, before the
    list prices, until `ends_at` where that is set.
    """

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_book_id)
    name = models.CharField(max_length=NAME_MAX)
    organization = models.ForeignKey(
        Organization, models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)
    effective_at = models.DateTimeField(null=True, blank=True)
    ends_at = models.DateTimeField(null=True, blank=True)
    published_at = models.DateTimeField(null=True, blank=True)
    published_by = models.ForeignKey(User, models.PROTECT, null=True, blank=True, related_name="+")
    cancelled_at = models.DateTimeField(null=True, blank=True)
    cancelled_by = models.ForeignKey(User, models.PROTECT, null=True, blank=True, related_name="+")

    class Meta:
        db_table = "pricing_price_book"
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(published_at__isnull=True) | Q(effective_at__isnull=False),
                name="published_book_is_dated",
            ),
            models.UniqueConstraint(
                fields=["organization", "effective_at"],
                name="one_book_takes_effect_at_a_time",
                condition=Q(published_at__isnull=False, cancelled_at__isnull=True),
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(ends_at__isnull=True) | Q(organization__isnull=False),
                name="list_prices_have_no_end",
            ),
            models.CheckConstraint(
                condition=Q(ends_at__isnull=True)
                | Q(effective_at__isnull=True)
                | Q(ends_at__gt=F("effective_at")),
                name="contract_ends_after_it_begins",
            ),
            models.CheckConstraint(
                condition=Q(cancelled_at__isnull=True)
                | Q(published_at__isnull=False, cancelled_at__lt=F("effective_at")),
                name="cancelled_before_it_took_effect",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def edits_owner_id(self) -> str:
        """The id for `lock_edits`: a draft may be given to another organization."""
        return self.id

    @property
    def is_published(self) -> bool:
        """Whether the book can no longer change."""
        return self.published_at is not None

    @property
    def is_cancelled(self) -> bool:
        """Whether the book was published and cancelled before it took effect."""
        return self.cancelled_at is not None

    @cached_property
    def superseded_at(self) -> datetime | None:
        """When newer books have replaced all of its prices, if they do. `selectors.books` loads it
        with the rows."""
        rows = PriceBook.objects.filter(pk=self.pk).annotate(at=superseded_at())
        return rows.values_list("at", flat=True).get()

    def state(self, now: datetime) -> BookState:
        """Return whether it decides what requests at `now` cost, and else why not."""
        if self.effective_at is None or not self.is_published:
            return BookState.DRAFT
        if self.is_cancelled:
            return BookState.CANCELLED
        if now < self.effective_at:
            return BookState.SCHEDULED
        if self.superseded_at is not None and self.superseded_at <= now:
            return BookState.SUPERSEDED
        if self.ends_at is not None and self.ends_at <= now:
            return BookState.EXPIRED
        return BookState.ACTIVE


class ServiceTier(models.TextChoices):
    """The urgency of a request."""

    PRIORITY = "priority", _("Priority")
    DEFAULT = "default", _("Default")
    FLEX = "flex", _("Flex")
    BATCH = "batch", _("Batch")


class Price(models.Model):
    """Three meters of one variant, tier and context band; cached input never costs more than input.

    The band begins at `input_tokens_min` and applies to the whole request; 0 is the base band.
    """

    # A table of the admin holds the id of a row only if nobody may edit it.
    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_price_id, editable=False)
    book = models.ForeignKey(PriceBook, models.PROTECT, related_name="prices")
    variant = models.ForeignKey(Variant, models.PROTECT, related_name="prices")
    tier = models.CharField(max_length=16, choices=ServiceTier, default=ServiceTier.DEFAULT)
    input_tokens_min = models.PositiveIntegerField(
        "from input tokens", default=0, validators=[MaxValueValidator(INPUT_TOKENS_MAX)]
    )
    input_nanos = models.BigIntegerField(validators=PRICE_BOUNDS)
    cached_input_nanos = models.BigIntegerField(validators=PRICE_BOUNDS)
    output_nanos = models.BigIntegerField(validators=PRICE_BOUNDS)

    class Meta:
        db_table = "pricing_price"
        constraints = [
            models.UniqueConstraint(
                fields=["book", "variant", "tier", "input_tokens_min"], name="price_is_unique"
            ),
            models.CheckConstraint(
                condition=Q(tier__in=ServiceTier.values), name="price_tier_is_known"
            ),
            models.CheckConstraint(
                condition=Q(cached_input_nanos__gte=0, output_nanos__gte=0)
                & Q(input_nanos__gte=F("cached_input_nanos")),
                name="cached_not_dearer_than_input",
            ),
        ]

    def __str__(self) -> str:
        floor = f" from {self.input_tokens_min:,} input tokens" if self.input_tokens_min else ""
        return f"{self.variant} {self.tier}{floor}"

    @property
    def edits_owner_id(self) -> str:
        """The id for `lock_edits`."""
        return self.book_id

    @property
    def is_contract(self) -> bool:
        """Whether it is one organization's contract price."""
        return self.book.organization_id is not None

"""Where followers stand, and what they made of the events."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex
from django.db import models

from billing.fields import Xid8Field
from billing.metering.models import ID_MAX, Caller, Day, Supply
from control.db.models import append_only


class Cursor(models.Model):
    """How far one follower has read: every transaction below `xid`, of the database of `lineage`.

    A restored database has another lineage: its followers reconcile before they go on.
    """

    name = models.CharField(primary_key=True, max_length=32)
    lineage = models.CharField(max_length=64)
    xid = Xid8Field()
    followed_at = models.DateTimeField()
    """All that was written by then is followed, in transactions still open at the time too."""
    head_xid = Xid8Field()
    """The first transaction id not given out at `head_at`: there, `followed_at` moves on."""
    head_at = models.DateTimeField()

    class Meta:
        db_table = "following_cursor"

    def __str__(self) -> str:
        return self.name


class Rollup(models.Model):
    """Sums over the usage received in one bucket of time with equal dimensions.

    `bucket_at` goes by when a request was received, `accounted_on` by the books: the two differ
    for usage that came after its day was closed. `ttft_counts[i]` counts the requests whose TTFT
    fell under `latency.BOUNDS_SECONDS[i]`.
    """

    organization_id = models.CharField(max_length=ID_MAX)
    bucket_at = models.DateTimeField()
    caller = models.ForeignKey(Caller, models.PROTECT, "+", db_constraint=False, db_index=False)
    supply = models.ForeignKey(Supply, models.PROTECT, "+", db_constraint=False, db_index=False)
    accounted_on = models.DateField()
    request_count = models.IntegerField()
    completed_count = models.IntegerField()
    client_cancelled_count = models.IntegerField()
    engine_failed_count = models.IntegerField()
    timed_out_count = models.IntegerField()
    gateway_lost_count = models.IntegerField()
    refused_by_engine_count = models.IntegerField()
    hedged_count = models.IntegerField()
    input_tokens = models.BigIntegerField()
    cached_input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    reasoning_tokens = models.BigIntegerField()
    input_nanos = models.BigIntegerField()
    cached_input_nanos = models.BigIntegerField()
    output_nanos = models.BigIntegerField()
    waived_nanos = models.BigIntegerField()
    ttft_counts = ArrayField(models.IntegerField())

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.organization_id} {self.bucket_at}"


DIMENSIONS = ["organization_id", "bucket_at", "caller", "supply", "accounted_on"]


class MinuteRollup(Rollup):
    """Usage by the minute."""

    class Meta(Rollup.Meta):
        abstract = False
        db_table = "following_minute_rollup"
        constraints = [models.UniqueConstraint(fields=DIMENSIONS, name="minute_rollup_is_unique")]
        indexes = [
            BrinIndex(fields=["accounted_on"], name="minute_rollup_by_day", autosummarize=True)
        ]


class Retention(models.Model):
    """From which day on the sums of one kind (`minutes`) are all there. Those before were deleted,
    or are about to be: nobody reads them."""

    name = models.CharField(primary_key=True, max_length=32)
    kept_from = models.DateField()

    class Meta:
        db_table = "following_retention"

    def __str__(self) -> str:
        return f"{self.name} from {self.kept_from}"


class HourRollup(Rollup):
    """Usage by the hour."""

    class Meta(Rollup.Meta):
        abstract = False
        db_table = "following_hour_rollup"
        constraints = [models.UniqueConstraint(fields=DIMENSIONS, name="hour_rollup_is_unique")]
        indexes = [
            BrinIndex(fields=["accounted_on"], name="hour_rollup_by_day", autosummarize=True)
        ]


class Seal(models.Model):
    """What one organization's usage of one day came to, and a digest of every row of it, chained
    to the organization's seal before. Never made twice, never changed."""

    day = models.ForeignKey(Day, models.PROTECT, related_name="seals")
    organization_id = models.CharField(max_length=ID_MAX)
    event_count = models.BigIntegerField()
    input_tokens = models.BigIntegerField()
    cached_input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    input_nanos = models.BigIntegerField()
    cached_input_nanos = models.BigIntegerField()
    output_nanos = models.BigIntegerField()
    waived_nanos = models.BigIntegerField()
    rows_digest = models.BinaryField(max_length=32)
    digest = models.BinaryField(max_length=32)

    class Meta:
        db_table = "following_seal"
        constraints = [
            models.UniqueConstraint(fields=["organization_id", "day"], name="seal_is_unique")
        ]
        triggers = append_only("seal")

    def __str__(self) -> str:
        return f"{self.organization_id} {self.day_id}"


class Proof(models.Model):
    """One proving of the books: when, and how many of how many checks failed."""

    made_at = models.DateTimeField()
    check_count = models.IntegerField()
    failed_count = models.IntegerField()

    class Meta:
        db_table = "following_proof"
        ordering = ["-id"]
        triggers = append_only("proof")

    def __str__(self) -> str:
        return f"{self.failed_count} of {self.check_count} checks failed"

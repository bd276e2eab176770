"""Usage facts and what follows from them. Everything carries its organization's id."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from serving.contract.ids import new_id

ID_MAX = 64


class UsageEvent(models.Model):
    """One request's usage with billing's own rating; written once, never changed.

    Partitioned by day over `event_id`: a UUIDv7 begins with its moment, so the one primary key
    keeps events unique across all days. `transaction_id` is the ledger transaction that booked
    `charged_nanos`; it settles each of `lease_ids` by the figure at its place in `lease_nanos`.
    """

    event_id = models.UUIDField(primary_key=True)
    organization_id = models.CharField(max_length=ID_MAX)
    project_id = models.CharField(max_length=ID_MAX)
    key_id = models.CharField(max_length=ID_MAX)
    gateway_id = models.CharField(max_length=ID_MAX)
    model_id = models.CharField(max_length=ID_MAX)
    variant_id = models.CharField(max_length=ID_MAX)
    deployment_id = models.CharField(max_length=ID_MAX)
    replica_id = models.CharField(max_length=ID_MAX, default="", blank=True)
    price_id = models.CharField(max_length=ID_MAX)
    endpoint = models.CharField(max_length=ID_MAX)
    tier = models.CharField(max_length=16)
    outcome = models.CharField(max_length=24)
    streamed = models.BooleanField()
    received_at = models.DateTimeField()
    input_tokens = models.BigIntegerField()
    cached_input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    reasoning_tokens = models.BigIntegerField()
    queue_seconds = models.FloatField()
    ttft_seconds = models.FloatField(null=True, blank=True)
    total_seconds = models.FloatField()
    client_request_id = models.CharField(max_length=128, default="", blank=True)
    charged_nanos = models.BigIntegerField()
    waived_nanos = models.BigIntegerField()
    transaction_id = models.CharField(max_length=ID_MAX, default="", blank=True)
    lease_ids = ArrayField(models.CharField(max_length=ID_MAX))
    lease_nanos = ArrayField(models.BigIntegerField())

    class Meta:
        db_table = "metering_usage_event"
        constraints = [
            models.CheckConstraint(
                condition=Q(cached_input_tokens__lte=F("input_tokens")),
                name="cached_is_part_of_input",
            ),
            models.CheckConstraint(
                condition=Q(charged_nanos__gte=0, waived_nanos__gte=0)
                & (Q(charged_nanos=0) | Q(waived_nanos=0)),
                name="charged_or_waived",
            ),
            models.CheckConstraint(
                condition=Q(charged_nanos=0, transaction_id="")
                | Q(charged_nanos__gt=0) & ~Q(transaction_id=""),
                name="charge_is_booked",
            ),
        ]
        indexes = [models.Index(fields=["organization_id", "event_id"], name="usage_event_by_org")]

    def __str__(self) -> str:
        return str(self.event_id)


class DeadLetter(models.Model):
    """An event that could not be booked, kept as it came for a person to look at.

    The digest of its bytes keeps a repeated batch from filing it again.
    """

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_id)
    digest = models.CharField(max_length=64, unique=True)
    event_id = models.CharField(max_length=200, blank=True)
    gateway_id = models.CharField(max_length=ID_MAX)
    reason = models.CharField(max_length=500)
    payload = models.BinaryField()
    received_at = models.DateTimeField()
    booked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "metering_dead_letter"

    def __str__(self) -> str:
        return f"{self.event_id or 'unreadable'}: {self.reason}"


class Tally(models.Model):
    """How often something worth a person's attention happened, per organization and day."""

    organization_id = models.CharField(max_length=ID_MAX)
    kind = models.CharField(max_length=40)
    day = models.DateField()
    count = models.BigIntegerField(default=0)

    class Meta:
        db_table = "metering_tally"
        verbose_name_plural = "tallies"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "kind", "day"], name="tally_is_unique"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.day}: {self.count}"


class Rollup(models.Model):
    """Sums over the events received in one bucket of time with equal dimensions.

    `ttft_counts[i]` counts the requests whose TTFT fell under `latency.BOUNDS_SECONDS[i]`.
    """

    bucket_at = models.DateTimeField()
    organization_id = models.CharField(max_length=ID_MAX)
    project_id = models.CharField(max_length=ID_MAX)
    key_id = models.CharField(max_length=ID_MAX)
    model_id = models.CharField(max_length=ID_MAX)
    variant_id = models.CharField(max_length=ID_MAX)
    tier = models.CharField(max_length=16)
    endpoint = models.CharField(max_length=ID_MAX)
    request_count = models.BigIntegerField()
    completed_count = models.BigIntegerField()
    client_cancelled_count = models.BigIntegerField()
    engine_failed_count = models.BigIntegerField()
    timed_out_count = models.BigIntegerField()
    gateway_lost_count = models.BigIntegerField()
    refused_by_engine_count = models.BigIntegerField()
    input_tokens = models.BigIntegerField()
    cached_input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    reasoning_tokens = models.BigIntegerField()
    charged_nanos = models.BigIntegerField()
    waived_nanos = models.BigIntegerField()
    ttft_counts = ArrayField(models.BigIntegerField())

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.organization_id} {self.bucket_at}"


DIMENSIONS = [
    "organization_id",
    "bucket_at",
    "project_id",
    "key_id",
    "model_id",
    "variant_id",
    "tier",
    "endpoint",
]


class MinuteRollup(Rollup):
    """Usage by the minute."""

    class Meta(Rollup.Meta):
        abstract = False
        db_table = "metering_minute_rollup"
        constraints = [models.UniqueConstraint(fields=DIMENSIONS, name="minute_rollup_is_unique")]


class HourRollup(Rollup):
    """Usage by the hour."""

    class Meta(Rollup.Meta):
        abstract = False
        db_table = "metering_hour_rollup"
        constraints = [models.UniqueConstraint(fields=DIMENSIONS, name="hour_rollup_is_unique")]

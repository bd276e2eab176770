"""What happened: usage events as facts, and what they name, interned. Written once, never changed.
Every row carries its organization's id."""

from datetime import datetime

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from billing.fields import CurrentXid, RealField, Xid8Field
from control.db.models import append_only
from serving.contract.ids import moment_of, new_id

ID_MAX = 64


class Caller(models.Model):
    """Who asked: an organization's project and key. A `fault` says that they do not belong
    together in control's rows; their usage is kept and not charged."""

    organization_id = models.CharField(max_length=ID_MAX)
    project_id = models.CharField(max_length=ID_MAX)
    key_id = models.CharField(max_length=ID_MAX)
    fault = models.CharField(max_length=40, null=True)  # noqa: DJ001 -- None is no fault

    class Meta:
        db_table = "metering_caller"
        triggers = append_only("caller")
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "project_id", "key_id"], name="caller_is_unique"
            )
        ]

    def __str__(self) -> str:
        return self.key_id


class Supply(models.Model):
    """What was sold: a variant of a model at a tier, by an endpoint, at a price."""

    model_id = models.CharField(max_length=ID_MAX)
    variant_id = models.CharField(max_length=ID_MAX)
    price_id = models.CharField(max_length=ID_MAX)
    endpoint = models.CharField(max_length=ID_MAX)
    tier = models.CharField(max_length=16)

    class Meta:
        db_table = "metering_supply"
        triggers = append_only("supply")
        constraints = [
            models.UniqueConstraint(
                fields=["model_id", "variant_id", "price_id", "endpoint", "tier"],
                name="supply_is_unique",
            )
        ]

    def __str__(self) -> str:
        return f"{self.variant_id} {self.tier}"


class Origin(models.Model):
    """Where it was served: a gateway, a deployment and its replica (empty where none was)."""

    gateway_id = models.CharField(max_length=ID_MAX)
    deployment_id = models.CharField(max_length=ID_MAX)
    replica_id = models.CharField(max_length=ID_MAX, default="", blank=True)

    class Meta:
        db_table = "metering_origin"
        triggers = append_only("origin")
        constraints = [
            models.UniqueConstraint(
                fields=["gateway_id", "deployment_id", "replica_id"], name="origin_is_unique"
            )
        ]

    def __str__(self) -> str:
        return self.replica_id


class Usage(models.Model):
    """One request's usage with billing's own rating: what an event and its correction share.

    The three meters' nanos add up to the charge, or, where it is waived, to what was not charged.
    Each of `lease_ids` was settled by the figure at its place in `lease_nanos`, or by the whole
    charge where that is None. `accounted_on` is the day of the books it belongs to, and
    `ingested_xid` what followers read by.
    """

    event_id = models.UUIDField(primary_key=True)
    organization_id = models.CharField(max_length=ID_MAX)
    ingested_xid = Xid8Field(null=True, db_default=CurrentXid(), editable=False)
    digest = models.BigIntegerField(null=True)
    """xxh3-64 of the bytes it came as: the same id with other bytes is an alarm."""
    input_nanos = models.BigIntegerField()
    cached_input_nanos = models.BigIntegerField()
    output_nanos = models.BigIntegerField()
    caller = models.ForeignKey(Caller, models.PROTECT, "+", db_constraint=False, db_index=False)
    supply = models.ForeignKey(Supply, models.PROTECT, "+", db_constraint=False, db_index=False)
    origin = models.ForeignKey(Origin, models.PROTECT, "+", db_constraint=False, db_index=False)
    input_tokens = models.IntegerField()
    cached_input_tokens = models.IntegerField()
    output_tokens = models.IntegerField()
    reasoning_tokens = models.IntegerField()
    accounted_on = models.DateField()
    queue_seconds = RealField()
    ttft_seconds = RealField(null=True, blank=True)
    total_seconds = RealField()
    rating = models.SmallIntegerField()
    streamed = models.BooleanField()
    is_waived = models.BooleanField()
    outcome = models.CharField(max_length=24)
    fault = models.CharField(max_length=40, null=True)  # noqa: DJ001 -- None is no fault
    client_request_id = models.CharField(max_length=128, null=True)  # noqa: DJ001 -- saves a byte
    lease_ids = ArrayField(models.BigIntegerField(), null=True)
    lease_nanos = ArrayField(models.BigIntegerField(), null=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.event_id)

    @property
    def received_at(self) -> datetime:
        """When the gateway took the request in: the millisecond in the event's id."""
        return moment_of(str(self.event_id))

    @property
    def rated_nanos(self) -> int:
        """The sum of the meters, charged or waived."""
        return self.input_nanos + self.cached_input_nanos + self.output_nanos

    @property
    def charged_nanos(self) -> int:
        """What the customer pays."""
        return 0 if self.is_waived else self.rated_nanos

    @property
    def waived_nanos(self) -> int:
        """What the operator bears."""
        return self.rated_nanos if self.is_waived else 0


class UsageEvent(Usage):
    """A request as it was first reported, partitioned by day over `event_id`: a UUIDv7 begins with
    its moment, so the one primary key keeps events unique across all days.

    Rows from before there were followers have neither `ingested_xid` nor `digest`.
    """

    class Meta:
        db_table = "metering_usage_event"
        constraints = [
            models.CheckConstraint(
                condition=Q(cached_input_tokens__lte=F("input_tokens")),
                name="cached_is_part_of_input",
            ),
            models.CheckConstraint(
                condition=Q(input_nanos__gte=0, cached_input_nanos__gte=0, output_nanos__gte=0),
                name="event_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(fault__isnull=True) | Q(is_waived=True), name="faulty_is_waived"
            ),
        ]
        indexes = [
            models.Index(fields=["organization_id", "event_id"], name="usage_event_by_org"),
            models.Index(fields=["ingested_xid"], name="usage_event_by_xid"),
        ]
        triggers = append_only("event")


class UsageCorrection(Usage):
    """The real outcome of a request that was first reported as `gateway_lost`; the first real one
    wins. Followers count the lost event out and this one in, in an open day."""

    class Meta:
        db_table = "metering_usage_correction"
        indexes = [
            models.Index(fields=["organization_id", "event_id"], name="correction_by_org"),
            models.Index(fields=["ingested_xid"], name="correction_by_xid"),
        ]
        triggers = append_only("correction")


class Day(models.Model):
    """A day of the books, once it is closed: what comes later is accounted on an open day. Sealed
    when every follower has passed `closed_xid`, then archived, and dropped: ingest makes no
    partition for it again."""

    day = models.DateField(primary_key=True)
    closed_at = models.DateTimeField(null=True)
    closed_xid = Xid8Field(null=True)
    sealed_at = models.DateTimeField(null=True)
    event_count = models.BigIntegerField(null=True)
    checked_at = models.DateTimeField(null=True)
    archive_path = models.CharField(max_length=500, blank=True)
    archived_at = models.DateTimeField(null=True)
    dropped_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "metering_day"

    def __str__(self) -> str:
        return str(self.day)


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
    dismissed_at = models.DateTimeField(null=True, blank=True)
    """When an operator decided that it is never booked; the audit log has the reason."""

    class Meta:
        db_table = "metering_dead_letter"

    def __str__(self) -> str:
        return f"{self.event_id or 'unreadable'}: {self.reason}"


class ResentUsage(models.Model):
    """The shipments of a gateway: when it last shipped, and what it sent again to the database of
    `lineage`, since another one had acknowledged it.

    `missing_count` of those events were unknown here, and `finished_at` is when the gateway had no
    more of them.
    """

    gateway_id = models.CharField(primary_key=True, max_length=ID_MAX)
    shipped_at = models.DateTimeField()
    lineage = models.CharField(max_length=64)
    event_count = models.BigIntegerField(default=0)
    missing_count = models.BigIntegerField(default=0)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "metering_resent_usage"
        verbose_name = "resent usage"
        verbose_name_plural = "resent usage"

    def __str__(self) -> str:
        return self.gateway_id

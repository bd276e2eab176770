"""What engines counted, as fleets sampled it: of replicas, never of organizations. And what drafts
of prices came to when they were replayed: of every organization, for operators alone."""

from typing import Any, Literal

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from billing.following.models import HourRollup
from control.pricing.models import PriceBook

ID_MAX = 64
NAME_MAX = 254
RunState = Literal["queued", "running", "done", "failed", "cancelled"]


class EngineLife(models.Model):
    """A replica from its start to its end; `ended_at` is that of the sample that says so, and
    stays None where the fleet died with its replica: such a life ends with its last sample."""

    id = models.AutoField(primary_key=True)
    replica_id = models.CharField(max_length=ID_MAX, unique=True)
    deployment_id = models.CharField(max_length=ID_MAX)
    fleet_id = models.CharField(max_length=ID_MAX)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "economics_engine_life"
        verbose_name_plural = "engine lives"
        indexes = [models.Index(fields=["started_at"], name="engine_life_by_start")]

    def __str__(self) -> str:
        return self.replica_id


class EngineSample(models.Model):
    """An engine's counters at one moment of its life: they only grow, prompts and requests count
    once per choice, and `input_tokens` includes `cached_tokens`.

    `hourly_cost_nanos` is what the replica cost when the sample came, None where unknown: another
    cost later changes nothing of the past.
    """

    pk = models.CompositePrimaryKey("life_id", "at")
    life = models.ForeignKey(EngineLife, models.PROTECT, related_name="samples", db_index=False)
    at = models.DateTimeField()
    input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    cached_tokens = models.BigIntegerField()
    requests = models.BigIntegerField()
    probe_input_tokens = models.BigIntegerField()
    probe_output_tokens = models.BigIntegerField()
    probe_requests = models.BigIntegerField()
    ready_seconds = models.BigIntegerField()
    busy_seconds = models.BigIntegerField()
    hourly_cost_nanos = models.BigIntegerField(null=True, blank=True)

    class Meta:
        db_table = "economics_engine_sample"
        constraints = [
            models.CheckConstraint(
                condition=Q(hourly_cost_nanos__isnull=True) | Q(hourly_cost_nanos__gte=0),
                name="sample_cost_not_negative",
            )
        ]

    def __str__(self) -> str:
        return f"{self.life_id} {self.at}"


class ReplayRuns(models.QuerySet["ReplayRun"]):
    """Questions about replays."""

    def unfinished(self) -> "ReplayRuns":
        """Return those that have days left, the oldest first."""
        left = self.filter(finished_at__isnull=True, cancelled_at__isnull=True, failure="")
        return left.order_by("id")


class ReplayRun(models.Model):
    """A replay of a draft over UTC days, both included, done up to `next_day`.

    `prices` and `organization_id` (None: a list) are the draft's as they were when it was asked
    for. `gone_days` were archived and are not in its lines. A `failure` ends it, and so does an
    operator: its lines are then of the days that were done.
    """

    book = models.ForeignKey(PriceBook, models.PROTECT, related_name="+")
    organization_id = models.CharField(max_length=ID_MAX, null=True)  # noqa: DJ001 -- None: a list
    prices: Any = models.JSONField()
    first_day = models.DateField()
    last_day = models.DateField()
    next_day = models.DateField()
    gone_days = ArrayField(models.DateField(), default=list)
    requested_by = models.CharField(max_length=NAME_MAX)
    requested_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    cancelled_at = models.DateTimeField(null=True)
    failure = models.CharField(max_length=200, blank=True)

    objects = ReplayRuns.as_manager()

    class Meta:
        db_table = "economics_replay_run"
        verbose_name = "replay"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(last_day__gte=models.F("first_day")), name="replay_has_days"
            )
        ]

    def __str__(self) -> str:
        return f"{self.book} over {self.first_day} to {self.last_day}"

    @property
    def state(self) -> RunState:
        """How far it has come."""
        if self.failure:
            return "failed"
        if self.cancelled_at is not None:
            return "cancelled"
        if self.finished_at is not None:
            return "done"
        return "queued" if self.started_at is None else "running"

    @property
    def is_unfinished(self) -> bool:
        """Whether days are left that will be done."""
        return self.state in ("queued", "running")

    @property
    def day_count(self) -> int:
        """How many days it has."""
        return (self.last_day - self.first_day).days + 1

    @property
    def done_day_count(self) -> int:
        """How many of them are done."""
        return (self.next_day - self.first_day).days


class ReplayLine(models.Model):
    """What one organization's usage of a variant and tier was charged, and would have been; as
    `billing.economics.replay.Replayed` says, over all days that are done."""

    pk = models.CompositePrimaryKey("run_id", "organization_id", "variant_id", "tier")
    run = models.ForeignKey(ReplayRun, models.CASCADE, related_name="lines", db_index=False)
    organization_id = models.CharField(max_length=ID_MAX)
    variant_id = models.CharField(max_length=ID_MAX)
    tier = models.CharField(max_length=16)
    request_count = models.BigIntegerField()
    repriced_count = models.BigIntegerField()
    contract_count = models.BigIntegerField()
    charged_nanos = models.BigIntegerField()
    draft_nanos = models.BigIntegerField()
    waived_nanos = models.BigIntegerField()
    draft_waived_nanos = models.BigIntegerField()

    class Meta:
        db_table = "economics_replay_line"

    def __str__(self) -> str:
        return f"{self.organization_id} {self.variant_id} {self.tier}"


class CostExport(HourRollup):
    """Usage and cost as the FOCUS export reads it: the hour rollups."""

    class Meta:
        proxy = True
        verbose_name = "FOCUS export"
        verbose_name_plural = "FOCUS export"


class JudgedHour(models.Model):
    """An hour whose engines were compared with its usage events, once."""

    hour_at = models.DateTimeField(primary_key=True)
    judged_at = models.DateTimeField()

    class Meta:
        db_table = "economics_judged_hour"

    def __str__(self) -> str:
        return f"{self.hour_at:%Y-%m-%d %H:%M}"


class Judgement(models.Model):
    """What one replica's engine counted in a judged hour, what was booked, and why the two may
    differ: `reasons` are [words, "engine" or "events" (which counted more), input and output
    tokens at most]. Where it is not `is_sampled`, events alone speak of [begins_at, ends_at)."""

    id = models.BigAutoField(primary_key=True)
    hour = models.ForeignKey(JudgedHour, models.PROTECT, related_name="judgements")
    replica_id = models.CharField(max_length=ID_MAX)
    deployment_id = models.CharField(max_length=ID_MAX)
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    is_sampled = models.BooleanField()
    is_alarming = models.BooleanField()
    engine_input_tokens = models.BigIntegerField()
    engine_output_tokens = models.BigIntegerField()
    event_count = models.BigIntegerField()
    event_input_tokens = models.BigIntegerField()
    event_output_tokens = models.BigIntegerField()
    unexplained_input_tokens = models.BigIntegerField()
    unexplained_output_tokens = models.BigIntegerField()
    reasons = models.JSONField(default=list)

    class Meta:
        db_table = "economics_judgement"
        constraints = [
            models.UniqueConstraint(
                fields=["hour", "replica_id", "is_sampled"], name="judged_once_an_hour"
            )
        ]

    def __str__(self) -> str:
        return f"{self.replica_id} {self.begins_at:%Y-%m-%d %H:%M}"

    def allowed(self, side: str) -> tuple[int, int]:
        """Return how many input and output tokens a side may count beyond the other."""
        of_side = [reason for reason in self.reasons if reason[1] == side]
        return sum(reason[2] for reason in of_side), sum(reason[3] for reason in of_side)

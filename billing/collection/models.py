"""What collection keeps: the operator's schedule, how each organization stands in it, and a log of
every step that was taken."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from control.db.models import ID_MAX, append_only
from control.organizations.models import Organization

DAYS_MAX = 365
REASON_MAX = 200


class StepKind(models.TextChoices):
    """What a scheduled step does: charge the saved method, or remind where there is none; serve
    prepaid money alone; refuse all requests."""

    RETRY = "retry", _("Charge or remind")
    LIMIT = "limit", _("Limit the service")
    SUSPEND = "suspend", _("Suspend")


class State(models.TextChoices):
    """How far an organization is. `GRACE` is after the last charge, before the first measure."""

    CURRENT = "current", _("Nothing overdue")
    RETRYING = "retrying", _("Being charged or reminded")
    GRACE = "grace", _("Grace")
    LIMITED = "limited", _("Limited")
    SUSPENDED = "suspended", _("Suspended")
    WRITTEN_OFF = "written_off", _("Written off")


class ScheduledStep(models.Model):
    """What is done so many days after an invoice is due. Limiting and suspending happen once."""

    days = models.PositiveSmallIntegerField("days after due", unique=True)
    kind = models.CharField(max_length=16, choices=StepKind)

    class Meta:
        db_table = "collection_scheduled_step"
        constraints = [
            models.UniqueConstraint(
                fields=["kind"],
                name="collection_measure_is_scheduled_once",
                condition=Q(kind__in=("limit", "suspend")),
            ),
            models.CheckConstraint(
                condition=Q(kind="retry") | Q(days__gte=1), name="collection_measure_is_after_due"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=StepKind.values, days__lte=DAYS_MAX),
                name="collection_step_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}, day {self.days}"


class Settings(models.Model):
    """The operator's choices, in one row. Steps are taken from `hour` (UTC) of their day on; who
    has less than `min_cents` overdue is left alone."""

    min_cents = models.PositiveIntegerField(default=100)
    hour = models.PositiveSmallIntegerField(default=9)

    class Meta:
        db_table = "collection_settings"
        verbose_name_plural = "settings"
        constraints = [
            models.CheckConstraint(condition=Q(id=1), name="collection_settings_are_one"),
            models.CheckConstraint(condition=Q(hour__lte=23), name="collection_hour_is_of_a_day"),
        ]

    def __str__(self) -> str:
        return "Settings"


class Case(models.Model):
    """How an organization that was ever invoiced stands. `next_at` is when somebody has to look.

    A case is open while something is overdue; `round` counts the times it was opened, or its
    oldest invoice became another. `last_days` and `last_on` say which step of the schedule was
    taken last, and on which day. `due_cents` is what was overdue at the last look.
    """

    organization = models.OneToOneField(
        Organization, models.PROTECT, primary_key=True, related_name="+"
    )
    state = models.CharField("status", max_length=16, choices=State, default=State.CURRENT)
    round = models.PositiveIntegerField(default=0)
    invoice_id = models.CharField(max_length=ID_MAX, blank=True)
    """The oldest invoice that is overdue and undisputed, from whose day steps are counted."""
    due_cents = models.BigIntegerField(default=0)
    opened_at = models.DateTimeField(null=True, blank=True)
    last_days = models.PositiveSmallIntegerField(null=True, blank=True)
    last_on = models.DateField(null=True, blank=True)
    not_before = models.DateField(null=True, blank=True)
    """No step is taken before this day: people were only just told, or given until then."""
    next_at = models.DateTimeField(null=True, blank=True)
    next_kind = models.CharField(max_length=16, choices=StepKind, blank=True)
    next_on = models.DateField(null=True, blank=True)
    limited_at = models.DateTimeField(null=True, blank=True)
    suspended_at = models.DateTimeField(null=True, blank=True)
    """When collection suspended it; None where an operator did, for another reason."""
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_until = models.DateField(null=True, blank=True)
    """The last day of the pause; None is until it is ended."""
    pause_reason = models.CharField(max_length=REASON_MAX, blank=True)
    waits_for = models.CharField(max_length=16, blank=True)
    """What holds the next step up: `pause`, `payment` or `dispute`."""

    class Meta:
        db_table = "collection_case"
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=State.values), name="collection_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(state__in=("current", "written_off"))
                | Q(opened_at__isnull=False) & ~Q(invoice_id=""),
                name="collection_case_has_its_invoice",
            ),
            models.CheckConstraint(
                condition=~Q(state="current")
                | Q(limited_at__isnull=True, suspended_at__isnull=True),
                name="collection_who_owes_nothing_is_served",
            ),
        ]
        indexes = [
            models.Index(fields=["next_at"], name="collection_case_by_next"),
        ]

    def __str__(self) -> str:
        return str(self.organization)

    @property
    def is_open(self) -> bool:
        """Whether something is overdue."""
        return self.opened_at is not None

    @property
    def has_measures(self) -> bool:
        """Whether its service is limited or suspended by collection."""
        return self.limited_at is not None or self.suspended_at is not None


class Step(models.Model):
    """One step that was taken: by the schedule, once per invoice and round, or by an operator."""

    organization_id = models.CharField(max_length=ID_MAX)
    invoice_id = models.CharField(max_length=ID_MAX, blank=True)
    round = models.PositiveIntegerField()
    name = models.CharField(max_length=100)
    """Such as `retry:3`; the operator's end in an id of their own."""
    outcome = models.CharField(max_length=40)
    due_cents = models.BigIntegerField()
    reason = models.CharField(max_length=REASON_MAX, blank=True)
    taken_by = models.CharField(max_length=254)
    taken_at = models.DateTimeField()

    class Meta:
        db_table = "collection_step"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "round", "invoice_id", "name"],
                name="collection_step_is_taken_once",
            )
        ]
        triggers = append_only("collection_step")

    def __str__(self) -> str:
        return f"{self.name}: {self.outcome}"

"""Data subject requests: exports, dry runs and erasures."""

from datetime import timedelta

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from control.accounts.models import User
from control.db.models import ID_MAX, new_id

EXPORT_RETENTION = timedelta(days=7)


def new_data_request_id() -> str:
    return new_id("dreq")


class RequestKind(models.TextChoices):
    """The kind of a data subject request."""

    EXPORT = "export", _("Export personal data")
    ERASURE_DRY_RUN = "erasure_dry_run", _("Erase (dry run)")
    ERASURE = "erasure", _("Erase personal data")


class RequestState(models.TextChoices):
    """The state of a data subject request."""

    WAITING = "waiting", _("Waiting")
    DONE = "done", _("Done")
    REFUSED = "refused", _("Refused")
    FAILED = "failed", _("Failed")


class DataSubjectRequest(models.Model):
    """A request that a worker runs on a person's data. An export is kept for a week;
    `told` holds sentences on what was done, or why not."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_data_request_id)
    person = models.ForeignKey(User, models.PROTECT, related_name="+")
    asked_by = models.ForeignKey(User, models.PROTECT, related_name="+")
    kind = models.CharField(max_length=16, choices=RequestKind)
    state = models.CharField(
        "status", max_length=16, choices=RequestState, default=RequestState.WAITING
    )
    percent = models.PositiveSmallIntegerField(default=0)
    attempts = models.PositiveSmallIntegerField(default=0)
    busy_until = models.DateTimeField(null=True, blank=True)
    """The end of the lease of the worker that runs it."""
    told = models.JSONField(default=list, blank=True)
    export = models.BinaryField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "data_requests_request"
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["person", "kind"],
                name="data_request_runs_once",
                condition=Q(state="waiting"),
            ),
            models.CheckConstraint(
                condition=Q(kind__in=RequestKind.values, state__in=RequestState.values),
                name="data_request_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"

    @property
    def has_export(self) -> bool:
        """Whether there is an export to download: a week long."""
        if self.kind != RequestKind.EXPORT or self.state != RequestState.DONE:
            return False
        return self.finished_at is not None and self.finished_at > timezone.now() - EXPORT_RETENTION

    @property
    def file_name(self) -> str:
        """The file name of the export."""
        return f"personal-data-{self.created_at:%Y-%m-%d}.zip"

    @property
    def is_open(self) -> bool:
        """Whether it is still waiting."""
        return self.state == RequestState.WAITING

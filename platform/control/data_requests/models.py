"""What was asked about people's data."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from control.accounts.models import User
from control.db.models import ID_MAX, new_id


def new_errand_id() -> str:
    """Return a fresh id of an errand."""
    return new_id("errand")


class RequestKind(models.TextChoices):
    """What is to be done."""

    COPY = "copy", "A copy of what is known"
    REHEARSAL = "rehearsal", "Say what erasing would do"
    ERASURE = "erasure", "Erase"


class RequestState(models.TextChoices):
    """How far it is."""

    WAITING = "waiting", "Waiting"
    DONE = "done", "Done"
    REFUSED = "refused", "Refused"
    FAILED = "failed", "Failed"


class DataSubjectRequest(models.Model):
    """One thing done about a person's data, by the worker. A copy is kept for a week; `told` says
    in words what was done, or why not."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_errand_id)
    person = models.ForeignKey(User, models.PROTECT, related_name="+")
    asked_by = models.ForeignKey(User, models.PROTECT, related_name="+")
    kind = models.CharField(max_length=16, choices=RequestKind)
    state = models.CharField(max_length=16, choices=RequestState, default=RequestState.WAITING)
    percent = models.PositiveSmallIntegerField(default=0)
    attempts = models.PositiveSmallIntegerField(default=0)
    busy_until = models.DateTimeField(null=True, blank=True)
    """Until then a worker has it."""
    told = models.JSONField(default=list, blank=True)
    copy = models.BinaryField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "data_requests_request"
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["person", "kind"],
                name="errand_runs_once",
                condition=Q(state="waiting"),
            ),
            models.CheckConstraint(
                condition=Q(kind__in=RequestKind.values, state__in=RequestState.values),
                name="errand_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"

    @property
    def has_copy(self) -> bool:
        """Whether there is something to download."""
        return (
            self.kind == RequestKind.COPY
            and self.state == RequestState.DONE
            and bool(self.finished_at)
        )

    @property
    def file_name(self) -> str:
        """What the export is saved as."""
        return f"personal-data-{self.created_at:%Y-%m-%d}.zip"

    @property
    def is_open(self) -> bool:
        """Whether it is still to be done."""
        return self.state == RequestState.WAITING

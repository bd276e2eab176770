"""How far closing a month came, for people to look at; invoices themselves say what is done."""

from django.db import models

from control.db.models import ID_MAX


class Close(models.Model):
    """The close of one month. It is finished when every organization that used anything has its
    invoice; a run that failed for some leaves it open, and the next one goes on."""

    starts_on = models.DateField(primary_key=True)
    started_at = models.DateTimeField()
    run_at = models.DateTimeField()
    """When the last run began."""
    finished_at = models.DateTimeField(null=True, blank=True)
    started_by = models.CharField(max_length=254)

    class Meta:
        db_table = "invoicing_close"

    def __str__(self) -> str:
        return f"{self.starts_on:%Y-%m}"


class CloseFailure(models.Model):
    """Why an organization has no invoice yet. Its row goes when it has."""

    close = models.ForeignKey(Close, models.CASCADE, related_name="failures")
    organization_id = models.CharField(max_length=ID_MAX)
    reason = models.CharField(max_length=500)
    failed_at = models.DateTimeField()

    class Meta:
        db_table = "invoicing_close_failure"
        constraints = [
            models.UniqueConstraint(
                fields=["close", "organization_id"], name="close_failure_is_unique"
            )
        ]

    def __str__(self) -> str:
        return f"{self.organization_id}: {self.reason}"

"""Counts of alarms."""

from django.db import models

from control.db.models import ID_MAX


class AlarmCount(models.Model):
    """The number of alarms of a kind that an organization, or the operator, had on a day."""

    organization_id = models.CharField(max_length=ID_MAX)
    kind = models.CharField(max_length=40)
    day = models.DateField()
    count = models.BigIntegerField(default=0)

    class Meta:
        db_table = "metering_tally"
        verbose_name = "alarm count"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "kind", "day"], name="tally_is_unique"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.day}: {self.count}"

"""Sums that never change again, kept so that a page over years reads few rows."""

from django.db import models

from control.db.models import append_only


class DayRevenue(models.Model):
    """What all customers were charged for one supply (model, variant, tier, price) on one sealed
    day of the books. Nothing joins a sealed day, so a row is written once and never changed."""

    accounted_on = models.DateField()
    supply_id = models.IntegerField()
    nanos = models.BigIntegerField()

    class Meta:
        db_table = "cockpit_day_revenue"
        verbose_name_plural = "revenue by the day"
        constraints = [
            models.UniqueConstraint(
                fields=["accounted_on", "supply_id"], name="day_revenue_is_unique"
            )
        ]
        triggers = append_only("day_revenue")

    def __str__(self) -> str:
        return f"{self.accounted_on} {self.supply_id}: {self.nanos}"


class KeptDay(models.Model):
    """A sealed day whose revenue was summed, or that had none."""

    day = models.DateField(primary_key=True)

    class Meta:
        db_table = "cockpit_kept_day"

    def __str__(self) -> str:
        return str(self.day)

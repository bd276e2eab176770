"""A deployment may sleep: no replica runs while nobody asks."""

from django.db import migrations, models
from django.db.models import Q

SLEEPS = "Without a request for so long all replicas stop until there is one; 0: never."
REFUSED = (
    "Only a deployment that requests wait for (wake_seconds) and whose replicas are ours may sleep."
)


class Migration(migrations.Migration):
    dependencies = [("catalog", "0005_a_tenth_reserved")]

    operations = [
        migrations.AddField(
            "deployment",
            "sleep_after_seconds",
            models.FloatField(default=0.0, help_text=SLEEPS),
        ),
        migrations.AddConstraint(
            "deployment",
            models.CheckConstraint(
                condition=Q(sleep_after_seconds=0)
                | Q(sleep_after_seconds__gt=0, wake_seconds__gt=0) & ~Q(engine="external"),
                name="sleeps_only_where_it_is_waited_for",
                violation_error_message=REFUSED,
            ),
        ),
    ]

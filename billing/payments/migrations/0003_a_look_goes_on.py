"""A look at everything keeps how far it is, so that another run goes on from there."""

from django.db import migrations, models
from django.db.models import Q

ID_MAX = 64
LOOKED_TO_THE_END = "UPDATE payments_reconciliation SET looked_until = ends_at"


class Migration(migrations.Migration):
    dependencies = [("payments", "0002_once_per_purpose_and_mode")]

    operations = [
        migrations.AddField(
            "reconciliation", "looked_until", models.DateTimeField(null=True)
        ),
        migrations.RunSQL(LOOKED_TO_THE_END, migrations.RunSQL.noop),
        migrations.AlterField("reconciliation", "looked_until", models.DateTimeField()),
        migrations.AddField(
            "reconciliation", "looked_dispute", models.CharField(blank=True, max_length=ID_MAX)
        ),
        migrations.AlterField(
            "reconciliation", "ended_at", models.DateTimeField(blank=True, null=True)
        ),
        migrations.AlterField("reconciliation", "movement_count", models.IntegerField(default=0)),
        migrations.AlterField("reconciliation", "healed_count", models.IntegerField(default=0)),
        migrations.AlterField("reconciliation", "gap_count", models.IntegerField(default=0)),
        migrations.AddConstraint(
            "reconciliation",
            models.UniqueConstraint(
                fields=["mode"],
                condition=Q(ended_at__isnull=True),
                name="reconciliation_under_way_is_one",
            ),
        ),
    ]

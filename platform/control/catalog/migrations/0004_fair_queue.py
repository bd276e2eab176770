"""How long a request waits for a slot, and what is kept free for more urgent tiers."""

from django.db import migrations, models
from django.db.models import Q

KEPT_FREE = "Part of all slots kept free for each tier whose clients wait, while in use."

ON_ITS_WAY = "For a replica on its way where none is ready; 0: refused at once."


class Migration(migrations.Migration):
    dependencies = [("catalog", "0003_embeddings")]

    operations = [
        migrations.AlterField(
            "deployment",
            "slots",
            models.PositiveIntegerField(default=32, help_text="Sequences at once per replica."),
        ),
        migrations.AddField(
            "deployment", "reserved_share", models.FloatField(default=0.08, help_text=KEPT_FREE)
        ),
        migrations.AddField("deployment", "queue_seconds", models.FloatField(default=30.0)),
        migrations.AddField(
            "deployment", "wake_seconds", models.FloatField(default=0.0, help_text=ON_ITS_WAY)
        ),
        migrations.AddConstraint(
            "deployment",
            models.CheckConstraint(
                condition=Q(reserved_share__gte=0, reserved_share__lte=1),
                name="reserved_share_is_a_part",
            ),
        ),
    ]

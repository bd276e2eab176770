"""A twelfth of the slots was too few: one in a hundred urgent requests found none free."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0004_fair_queue")]

    operations = [
        migrations.AlterField(
            "deployment",
            "reserved_share",
            models.FloatField(
                default=0.1,
                help_text="Part of all slots kept free for each tier whose clients wait, while in"
                " use.",
            ),
        ),
    ]

"""Requests that two replicas were asked for end as `hedged` at the slower one, and are counted."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("following", "0003_retention")]

    operations = [
        migrations.AddField(
            model_name=name,
            name="hedged_count",
            field=models.IntegerField(default=0),
            preserve_default=False,
        )
        for name in ("hourrollup", "minuterollup")
    ]

"""Followers know what had been written when: an open writer shows in their lag."""

import django.utils.timezone
from django.db import migrations, models

import billing.fields


class Migration(migrations.Migration):
    dependencies = [("following", "0004_hedged")]

    operations = [
        migrations.AddField(
            model_name="cursor",
            name="head_xid",
            field=billing.fields.Xid8Field(default="0"),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="cursor",
            name="head_at",
            field=models.DateTimeField(default=django.utils.timezone.now),
            preserve_default=False,
        ),
        migrations.RunSQL(
            "UPDATE following_cursor SET head_at = followed_at", migrations.RunSQL.noop
        ),
    ]

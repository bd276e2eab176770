"""Rollups by the minute are kept for some days only, and the database says from which on."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("following", "0002_followers")]

    operations = [
        migrations.CreateModel(
            name="Retention",
            fields=[
                ("name", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("kept_from", models.DateField()),
            ],
            options={"db_table": "following_retention"},
        ),
    ]

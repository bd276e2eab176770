"""Followers begin: usage from before them counts as followed, so its sums are made here. The ledger
holds that usage already."""

import pathlib

import django.contrib.postgres.indexes
from django.db import migrations

from billing.following.rollups import statement

SQL = pathlib.Path(__file__).parent.parent / "sql"
CURSORS = """
INSERT INTO following_cursor (name, lineage, xid, followed_at)
SELECT name, '', '0', now() FROM unnest(ARRAY['rollups', 'postings', 'keys']) AS name
"""


def fill(apps, schema_editor):
    schema_editor.execute(statement("ingested_xid IS NULL"), params=None)


class Migration(migrations.Migration):
    dependencies = [
        ("following", "0001_initial"),
        ("credit", "0002_authorization"),
        ("keys", "0001_initial"),
    ]

    operations = [
        migrations.RunSQL((SQL / "usage.sql").read_text(), "DROP VIEW following_usage; DROP VIEW following_correction"),
        migrations.RunSQL((SQL / "record.sql").read_text(), "DROP VIEW following_record"),
        migrations.RunSQL(CURSORS, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name='hourrollup',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['accounted_on'], name='hour_rollup_by_day'),
        ),
        migrations.AddIndex(
            model_name='minuterollup',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['accounted_on'], name='minute_rollup_by_day'),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]

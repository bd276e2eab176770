import pathlib

import billing.fields
import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

SQL = pathlib.Path(__file__).parent.parent / "sql"
CURSORS = """
INSERT INTO following_cursor (name, lineage, xid, followed_at, head_xid, head_at)
SELECT name, '', '0', now(), '0', now() FROM unnest(ARRAY['rollups', 'postings', 'keys']) AS name
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ('metering', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Cursor',
            fields=[
                ('name', models.CharField(max_length=32, primary_key=True, serialize=False)),
                ('lineage', models.CharField(max_length=64)),
                ('xid', billing.fields.Xid8Field()),
                ('followed_at', models.DateTimeField()),
                ('head_xid', billing.fields.Xid8Field()),
                ('head_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'following_cursor',
            },
        ),
        migrations.CreateModel(
            name='MinuteRollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organization_id', models.CharField(max_length=64)),
                ('bucket_at', models.DateTimeField()),
                ('caller', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='metering.caller')),
                ('supply', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='metering.supply')),
                ('accounted_on', models.DateField()),
                ('request_count', models.IntegerField()),
                ('completed_count', models.IntegerField()),
                ('client_cancelled_count', models.IntegerField()),
                ('engine_failed_count', models.IntegerField()),
                ('timed_out_count', models.IntegerField()),
                ('gateway_lost_count', models.IntegerField()),
                ('refused_by_engine_count', models.IntegerField()),
                ('hedged_count', models.IntegerField()),
                ('input_tokens', models.BigIntegerField()),
                ('cached_input_tokens', models.BigIntegerField()),
                ('output_tokens', models.BigIntegerField()),
                ('reasoning_tokens', models.BigIntegerField()),
                ('input_nanos', models.BigIntegerField()),
                ('cached_input_nanos', models.BigIntegerField()),
                ('output_nanos', models.BigIntegerField()),
                ('waived_nanos', models.BigIntegerField()),
                ('ttft_counts', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)),
            ],
            options={
                'db_table': 'following_minute_rollup',
                'abstract': False,
                'indexes': [django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['accounted_on'], name='minute_rollup_by_day')],
                'constraints': [models.UniqueConstraint(fields=('organization_id', 'bucket_at', 'caller', 'supply', 'accounted_on'), name='minute_rollup_is_unique')],
            },
        ),
        migrations.CreateModel(
            name='Retention',
            fields=[
                ('name', models.CharField(max_length=32, primary_key=True, serialize=False)),
                ('kept_from', models.DateField()),
            ],
            options={
                'db_table': 'following_retention',
            },
        ),
        migrations.CreateModel(
            name='HourRollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organization_id', models.CharField(max_length=64)),
                ('bucket_at', models.DateTimeField()),
                ('caller', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='metering.caller')),
                ('supply', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='metering.supply')),
                ('accounted_on', models.DateField()),
                ('request_count', models.IntegerField()),
                ('completed_count', models.IntegerField()),
                ('client_cancelled_count', models.IntegerField()),
                ('engine_failed_count', models.IntegerField()),
                ('timed_out_count', models.IntegerField()),
                ('gateway_lost_count', models.IntegerField()),
                ('refused_by_engine_count', models.IntegerField()),
                ('hedged_count', models.IntegerField()),
                ('input_tokens', models.BigIntegerField()),
                ('cached_input_tokens', models.BigIntegerField()),
                ('output_tokens', models.BigIntegerField()),
                ('reasoning_tokens', models.BigIntegerField()),
                ('input_nanos', models.BigIntegerField()),
                ('cached_input_nanos', models.BigIntegerField()),
                ('output_nanos', models.BigIntegerField()),
                ('waived_nanos', models.BigIntegerField()),
                ('ttft_counts', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)),
            ],
            options={
                'db_table': 'following_hour_rollup',
                'abstract': False,
                'indexes': [django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['accounted_on'], name='hour_rollup_by_day')],
                'constraints': [models.UniqueConstraint(fields=('organization_id', 'bucket_at', 'caller', 'supply', 'accounted_on'), name='hour_rollup_is_unique')],
            },
        ),
        migrations.CreateModel(
            name='Seal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='seals', to='metering.day')),
                ('organization_id', models.CharField(max_length=64)),
                ('event_count', models.BigIntegerField()),
                ('input_tokens', models.BigIntegerField()),
                ('cached_input_tokens', models.BigIntegerField()),
                ('output_tokens', models.BigIntegerField()),
                ('input_nanos', models.BigIntegerField()),
                ('cached_input_nanos', models.BigIntegerField()),
                ('output_nanos', models.BigIntegerField()),
                ('waived_nanos', models.BigIntegerField()),
                ('rows_digest', models.BinaryField(max_length=32)),
                ('digest', models.BinaryField(max_length=32)),
            ],
            options={
                'db_table': 'following_seal',
                'constraints': [models.UniqueConstraint(fields=('organization_id', 'day'), name='seal_is_unique')],
            },
        ),
        migrations.CreateModel(
            name='Proof',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('made_at', models.DateTimeField()),
                ('check_count', models.IntegerField()),
                ('failed_count', models.IntegerField()),
            ],
            options={
                'db_table': 'following_proof',
                'ordering': ['-id'],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='seal',
            trigger=pgtrigger.compiler.Trigger(name='seal_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='7caae3a80ccc2d7e08c3e899e7249290e0313863', operation='UPDATE OR DELETE', pgid='pgtrigger_seal_stays_f4954', table='following_seal', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='seal',
            trigger=pgtrigger.compiler.Trigger(name='seal_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='dc73c2c102521d7bf1910b74c47b696f29a47c62', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_seal_all_stay_b51e8', table='following_seal', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='proof',
            trigger=pgtrigger.compiler.Trigger(name='proof_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='993c26e07477fef5f2e4b29a4abbb493217f69f8', operation='UPDATE OR DELETE', pgid='pgtrigger_proof_stays_490e3', table='following_proof', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='proof',
            trigger=pgtrigger.compiler.Trigger(name='proof_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='82a996845ac3807e1693f403dd8355eaccb97ab9', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_proof_all_stay_5ca51', table='following_proof', when='BEFORE')),
        ),
        migrations.RunSQL((SQL / "usage.sql").read_text()),
        migrations.RunSQL((SQL / "record.sql").read_text()),
        migrations.RunSQL(CURSORS),
    ]

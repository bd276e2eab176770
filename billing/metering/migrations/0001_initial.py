import pathlib

import billing.fields
import django.contrib.postgres.fields
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
import serving.contract.ids
from django.db import migrations, models

from billing.metering.partitions import CreatePartitionedModel

FACTS = pathlib.Path(__file__).parent.parent / "sql" / "facts.sql"


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name='Caller',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organization_id', models.CharField(max_length=64)),
                ('project_id', models.CharField(max_length=64)),
                ('key_id', models.CharField(max_length=64)),
                ('fault', models.CharField(max_length=40, null=True)),
            ],
            options={
                'db_table': 'metering_caller',
                'constraints': [models.UniqueConstraint(fields=('organization_id', 'project_id', 'key_id'), name='caller_is_unique')],
            },
        ),
        migrations.CreateModel(
            name='Supply',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('model_id', models.CharField(max_length=64)),
                ('variant_id', models.CharField(max_length=64)),
                ('price_id', models.CharField(max_length=64)),
                ('endpoint', models.CharField(max_length=64)),
                ('tier', models.CharField(max_length=16)),
            ],
            options={
                'db_table': 'metering_supply',
                'constraints': [models.UniqueConstraint(fields=('model_id', 'variant_id', 'price_id', 'endpoint', 'tier'), name='supply_is_unique')],
            },
        ),
        migrations.CreateModel(
            name='Origin',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('gateway_id', models.CharField(max_length=64)),
                ('deployment_id', models.CharField(max_length=64)),
                ('replica_id', models.CharField(blank=True, default='', max_length=64)),
            ],
            options={
                'db_table': 'metering_origin',
                'constraints': [models.UniqueConstraint(fields=('gateway_id', 'deployment_id', 'replica_id'), name='origin_is_unique')],
            },
        ),
        CreatePartitionedModel(
            name='UsageEvent',
            fields=[
                ('event_id', models.UUIDField(primary_key=True, serialize=False)),
                ('organization_id', models.CharField(max_length=64)),
                ('ingested_xid', billing.fields.Xid8Field(db_default=billing.fields.CurrentXid(), editable=False, null=True)),
                ('digest', models.BigIntegerField(null=True)),
                ('input_nanos', models.BigIntegerField()),
                ('cached_input_nanos', models.BigIntegerField()),
                ('output_nanos', models.BigIntegerField()),
                ('input_tokens', models.IntegerField()),
                ('cached_input_tokens', models.IntegerField()),
                ('output_tokens', models.IntegerField()),
                ('reasoning_tokens', models.IntegerField()),
                ('accounted_on', models.DateField()),
                ('queue_seconds', billing.fields.RealField()),
                ('ttft_seconds', billing.fields.RealField(blank=True, null=True)),
                ('total_seconds', billing.fields.RealField()),
                ('rating', models.SmallIntegerField()),
                ('streamed', models.BooleanField()),
                ('is_waived', models.BooleanField()),
                ('outcome', models.CharField(max_length=24)),
                ('fault', models.CharField(max_length=40, null=True)),
                ('client_request_id', models.CharField(max_length=128, null=True)),
                ('lease_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), null=True, size=None)),
                ('lease_nanos', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), null=True, size=None)),
                ('caller', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='metering.caller')),
                ('origin', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='metering.origin')),
                ('supply', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='metering.supply')),
            ],
            options={
                'db_table': 'metering_usage_event',
                'indexes': [models.Index(fields=['organization_id', 'event_id'], name='usage_event_by_org'), models.Index(fields=['ingested_xid'], name='usage_event_by_xid')],
                'constraints': [models.CheckConstraint(condition=models.Q(('cached_input_tokens__lte', models.F('input_tokens'))), name='cached_is_part_of_input'), models.CheckConstraint(condition=models.Q(('cached_input_nanos__gte', 0), ('input_nanos__gte', 0), ('output_nanos__gte', 0)), name='event_not_negative'), models.CheckConstraint(condition=models.Q(('fault__isnull', True), ('is_waived', True), _connector='OR'), name='faulty_is_waived')],
            },
        ),
        migrations.CreateModel(
            name='UsageCorrection',
            fields=[
                ('event_id', models.UUIDField(primary_key=True, serialize=False)),
                ('organization_id', models.CharField(max_length=64)),
                ('ingested_xid', billing.fields.Xid8Field(db_default=billing.fields.CurrentXid(), editable=False, null=True)),
                ('digest', models.BigIntegerField(null=True)),
                ('input_nanos', models.BigIntegerField()),
                ('cached_input_nanos', models.BigIntegerField()),
                ('output_nanos', models.BigIntegerField()),
                ('caller', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='metering.caller')),
                ('supply', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='metering.supply')),
                ('origin', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='metering.origin')),
                ('input_tokens', models.IntegerField()),
                ('cached_input_tokens', models.IntegerField()),
                ('output_tokens', models.IntegerField()),
                ('reasoning_tokens', models.IntegerField()),
                ('accounted_on', models.DateField()),
                ('queue_seconds', billing.fields.RealField()),
                ('ttft_seconds', billing.fields.RealField(blank=True, null=True)),
                ('total_seconds', billing.fields.RealField()),
                ('rating', models.SmallIntegerField()),
                ('streamed', models.BooleanField()),
                ('is_waived', models.BooleanField()),
                ('outcome', models.CharField(max_length=24)),
                ('fault', models.CharField(max_length=40, null=True)),
                ('client_request_id', models.CharField(max_length=128, null=True)),
                ('lease_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), null=True, size=None)),
                ('lease_nanos', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), null=True, size=None)),
            ],
            options={
                'db_table': 'metering_usage_correction',
                'indexes': [models.Index(fields=['organization_id', 'event_id'], name='correction_by_org'), models.Index(fields=['ingested_xid'], name='correction_by_xid')],
            },
        ),
        migrations.CreateModel(
            name='Day',
            fields=[
                ('day', models.DateField(primary_key=True, serialize=False)),
                ('closed_at', models.DateTimeField(null=True)),
                ('closed_xid', billing.fields.Xid8Field(null=True)),
                ('sealed_at', models.DateTimeField(null=True)),
                ('event_count', models.BigIntegerField(null=True)),
                ('checked_at', models.DateTimeField(null=True)),
                ('archive_path', models.CharField(blank=True, max_length=500)),
                ('archived_at', models.DateTimeField(null=True)),
                ('dropped_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'metering_day',
            },
        ),
        migrations.CreateModel(
            name='DeadLetter',
            fields=[
                ('id', models.CharField(default=serving.contract.ids.new_id, max_length=64, primary_key=True, serialize=False)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('event_id', models.CharField(blank=True, max_length=200)),
                ('gateway_id', models.CharField(max_length=64)),
                ('reason', models.CharField(max_length=500)),
                ('payload', models.BinaryField()),
                ('received_at', models.DateTimeField()),
                ('booked_at', models.DateTimeField(blank=True, null=True)),
                ('dismissed_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'metering_dead_letter',
            },
        ),
        migrations.CreateModel(
            name='Tally',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organization_id', models.CharField(max_length=64)),
                ('kind', models.CharField(max_length=40)),
                ('day', models.DateField()),
                ('count', models.BigIntegerField(default=0)),
            ],
            options={
                'verbose_name': 'alarm count',
                'db_table': 'metering_tally',
                'constraints': [models.UniqueConstraint(fields=('organization_id', 'kind', 'day'), name='tally_is_unique')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='caller',
            trigger=pgtrigger.compiler.Trigger(name='caller_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='5fedaf997310019330b8ed61da5ed6795ea1b054', operation='UPDATE OR DELETE', pgid='pgtrigger_caller_stays_f977d', table='metering_caller', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='caller',
            trigger=pgtrigger.compiler.Trigger(name='caller_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='b54c13b1c1933e7ada30d07b066c84704a557967', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_caller_all_stay_f4a68', table='metering_caller', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='supply',
            trigger=pgtrigger.compiler.Trigger(name='supply_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='be96488844482450cb728e783fd2f24716034122', operation='UPDATE OR DELETE', pgid='pgtrigger_supply_stays_f6631', table='metering_supply', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='supply',
            trigger=pgtrigger.compiler.Trigger(name='supply_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='58276fc126eb216ae54970e1fc7808304c4f4e1b', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_supply_all_stay_b6e9e', table='metering_supply', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='origin',
            trigger=pgtrigger.compiler.Trigger(name='origin_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='ce969482059b0ce2b34d5fde7ab7a20ec36151f8', operation='UPDATE OR DELETE', pgid='pgtrigger_origin_stays_88d35', table='metering_origin', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='origin',
            trigger=pgtrigger.compiler.Trigger(name='origin_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='640b0511d891096cad26a6298d633c09029ba801', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_origin_all_stay_27b76', table='metering_origin', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='usageevent',
            trigger=pgtrigger.compiler.Trigger(name='event_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='6fa6f4b1b883b78ed6870eb73b11eb9f66f7acc6', operation='UPDATE OR DELETE', pgid='pgtrigger_event_stays_0a179', table='metering_usage_event', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='usageevent',
            trigger=pgtrigger.compiler.Trigger(name='event_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='4c95e45ddeb11a2957e08ed99444ec7f1de8eae9', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_event_all_stay_06df2', table='metering_usage_event', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='usagecorrection',
            trigger=pgtrigger.compiler.Trigger(name='correction_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='968a542c94d027e6e8547754af2569b48d508328', operation='UPDATE OR DELETE', pgid='pgtrigger_correction_stays_2e85c', table='metering_usage_correction', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='usagecorrection',
            trigger=pgtrigger.compiler.Trigger(name='correction_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='fcf48f0933bd390f7975c10f86ddfe44d1d1ba09', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_correction_all_stay_592cc', table='metering_usage_correction', when='BEFORE')),
        ),
        migrations.RunSQL(FACTS.read_text()),
    ]

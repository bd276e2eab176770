"""Events as facts in half the room: what they name is interned, their charge is kept by meter, and
followers read them by the transaction that wrote them. What there was is carried over to the nano.
"""

import pathlib

import billing.fields
import django.contrib.postgres.fields
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from billing.metering.partitions import CreatePartitionedModel

FACTS = pathlib.Path(__file__).parent.parent / "sql" / "facts.sql"

KEEP_OLD = """
CREATE TABLE metering_old_event AS SELECT * FROM metering_usage_event;
DROP TABLE metering_usage_event;
DROP FUNCTION metering_refuse_change();
"""

MAKE_DAYS = """
SELECT metering_make_day(day) FROM (
    SELECT DISTINCT (metering_received_at(event_id) AT TIME ZONE 'UTC')::date AS day
    FROM metering_old_event
) AS days;
"""

# Charges were rounded once, in sum: each meter is what the running sum, rounded, grows by (as
# serving.contract.price tells rule 1).
FILL = """
INSERT INTO metering_caller (organization_id, project_id, key_id)
SELECT DISTINCT organization_id, project_id, key_id FROM metering_old_event ORDER BY 1, 2, 3;

INSERT INTO metering_supply (model_id, variant_id, price_id, endpoint, tier)
SELECT DISTINCT model_id, variant_id, price_id, endpoint, replace(tier, 'standard', 'default')
FROM metering_old_event ORDER BY 1, 2, 3, 4, 5;

INSERT INTO metering_origin (gateway_id, deployment_id, replica_id)
SELECT DISTINCT gateway_id, deployment_id, replica_id FROM metering_old_event ORDER BY 1, 2, 3;

INSERT INTO metering_usage_event (event_id, organization_id, ingested_xid, input_nanos,
    cached_input_nanos, output_nanos, caller_id, supply_id, origin_id, input_tokens,
    cached_input_tokens, output_tokens, reasoning_tokens, accounted_on, queue_seconds,
    ttft_seconds, total_seconds, rating, streamed, is_waived, outcome, client_request_id)
SELECT old.event_id, old.organization_id, NULL, meters.input_nanos, meters.cached_input_nanos,
    old.charged_nanos + old.waived_nanos - meters.input_nanos - meters.cached_input_nanos,
    caller.id, supply.id, origin.id, old.input_tokens, old.cached_input_tokens, old.output_tokens,
    old.reasoning_tokens, (metering_received_at(old.event_id) AT TIME ZONE 'UTC')::date,
    old.queue_seconds, old.ttft_seconds, old.total_seconds, 1, old.streamed,
    old.outcome NOT IN ('completed', 'client_cancelled'), old.outcome,
    nullif(old.client_request_id, '')
FROM metering_old_event AS old
JOIN prices_price AS price ON price.id = old.price_id
CROSS JOIN LATERAL (SELECT
    (old.input_tokens - old.cached_input_tokens)::numeric * price.input_nanos AS uncached,
    old.cached_input_tokens::numeric * price.cached_input_nanos AS cached
) AS exact
CROSS JOIN LATERAL (SELECT
    div(exact.uncached + 500000, 1000000)::bigint AS input_nanos,
    div(exact.uncached + exact.cached + 500000, 1000000)::bigint
        - div(exact.uncached + 500000, 1000000)::bigint AS cached_input_nanos
) AS meters
JOIN metering_caller AS caller USING (organization_id, project_id, key_id)
JOIN metering_supply AS supply ON (supply.model_id, supply.variant_id, supply.price_id,
    supply.endpoint, supply.tier) = (old.model_id, old.variant_id, old.price_id, old.endpoint,
    replace(old.tier, 'standard', 'default'))
JOIN metering_origin AS origin USING (gateway_id, deployment_id, replica_id);

DROP TABLE metering_old_event;
"""

# What the months of organizations, projects and keys were charged, by when requests were received:
# the month in their ids.
FILL_MONTHS = """
WITH charged AS (
    SELECT caller.organization_id, caller.project_id, caller.key_id,
        date_trunc('month', metering_received_at(event.event_id) AT TIME ZONE 'UTC') AS month,
        sum(event.input_nanos + event.cached_input_nanos + event.output_nanos)::bigint AS nanos
    FROM metering_usage_event AS event
    JOIN metering_caller AS caller ON caller.id = event.caller_id
    WHERE NOT event.is_waived GROUP BY 1, 2, 3, 4
)
INSERT INTO credit_budget (budget_id, kind, organization_id, starts_at, ends_at, limit_nanos,
    posted_nanos, pending_nanos, funded_nanos)
SELECT 'limit:' || one.id, one.kind, charged.organization_id, charged.month AT TIME ZONE 'UTC',
    (charged.month + interval '1 month') AT TIME ZONE 'UTC',
    coalesce(organization.spend_limit_nanos, project.spend_limit_nanos, key.spend_limit_nanos),
    sum(charged.nanos)::bigint, 0, 0
FROM charged CROSS JOIN LATERAL (VALUES
    (charged.organization_id, 'organization'), (charged.project_id, 'project'),
    (charged.key_id, 'key')
) AS one (id, kind)
LEFT JOIN tenants_organization AS organization
    ON one.kind = 'organization' AND organization.id = one.id
LEFT JOIN tenants_project AS project ON one.kind = 'project' AND project.id = one.id
LEFT JOIN keys_api_key AS key ON one.kind = 'key' AND key.id = one.id
GROUP BY one.id, one.kind, charged.organization_id, charged.month,
    organization.spend_limit_nanos, project.spend_limit_nanos, key.spend_limit_nanos;
"""

DROP_FUNCTIONS = "DROP FUNCTION metering_make_day, metering_received_at, metering_first_id"


class Migration(migrations.Migration):
    # An old charge is split by its old price; the names of tiers change after that.
    dependencies = [
        ("metering", "0002_events_are_immutable"),
        ("prices", "0003_one_book_takes_effect_at_a_time"),
        ("credit", "0002_authorization"),
    ]

    operations = [
        migrations.RunSQL(
            KEEP_OLD,
            migrations.RunSQL.noop,
            state_operations=[migrations.DeleteModel("UsageEvent")],
        ),
        migrations.DeleteModel("MinuteRollup"),
        migrations.DeleteModel("HourRollup"),
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
                'db_table': 'metering_usage_correction',
                'indexes': [models.Index(fields=['organization_id', 'event_id'], name='correction_by_org'), models.Index(fields=['ingested_xid'], name='correction_by_xid')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='usagecorrection',
            trigger=pgtrigger.compiler.Trigger(name='correction_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='968a542c94d027e6e8547754af2569b48d508328', operation='UPDATE OR DELETE', pgid='pgtrigger_correction_stays_2e85c', table='metering_usage_correction', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='usagecorrection',
            trigger=pgtrigger.compiler.Trigger(name='correction_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='fcf48f0933bd390f7975c10f86ddfe44d1d1ba09', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_correction_all_stay_592cc', table='metering_usage_correction', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='usageevent',
            index=models.Index(fields=['organization_id', 'event_id'], name='usage_event_by_org'),
        ),
        migrations.AddIndex(
            model_name='usageevent',
            index=models.Index(fields=['ingested_xid'], name='usage_event_by_xid'),
        ),
        migrations.AddConstraint(
            model_name='usageevent',
            constraint=models.CheckConstraint(condition=models.Q(('cached_input_tokens__lte', models.F('input_tokens'))), name='cached_is_part_of_input'),
        ),
        migrations.AddConstraint(
            model_name='usageevent',
            constraint=models.CheckConstraint(condition=models.Q(('cached_input_nanos__gte', 0), ('input_nanos__gte', 0), ('output_nanos__gte', 0)), name='event_not_negative'),
        ),
        migrations.AddConstraint(
            model_name='usageevent',
            constraint=models.CheckConstraint(condition=models.Q(('fault__isnull', True), ('is_waived', True), _connector='OR'), name='faulty_is_waived'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='usageevent',
            trigger=pgtrigger.compiler.Trigger(name='event_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='6fa6f4b1b883b78ed6870eb73b11eb9f66f7acc6', operation='UPDATE OR DELETE', pgid='pgtrigger_event_stays_0a179', table='metering_usage_event', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='usageevent',
            trigger=pgtrigger.compiler.Trigger(name='event_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='4c95e45ddeb11a2957e08ed99444ec7f1de8eae9', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_event_all_stay_06df2', table='metering_usage_event', when='BEFORE')),
        ),
        migrations.RunSQL(FACTS.read_text(), DROP_FUNCTIONS),
        migrations.RunSQL(MAKE_DAYS, migrations.RunSQL.noop),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.RunSQL(FILL_MONTHS, migrations.RunSQL.noop),
    ]

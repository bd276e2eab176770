import pathlib

import billing.credit.models
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

AUTHORIZATION = pathlib.Path(__file__).parent.parent / "sql" / "authorization.sql"
# Their figures move all the time; with room in the page no index is touched.
ROOM_TO_UPDATE = """
ALTER TABLE credit_budget SET (fillfactor = 50);
ALTER TABLE credit_lease SET (fillfactor = 50);
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ('limits', '0001_initial'),
        ('api_keys', '0001_initial'),
        ('ledger', '0001_initial'),
        ('organizations', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Budget',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('budget_id', models.CharField(db_collation='C', max_length=64)),
                ('kind', models.CharField(choices=[('balance', 'Balance'), ('organization', 'Organization'), ('project', 'Project'), ('key', 'API key')], max_length=16)),
                ('period', models.CharField(choices=[('lifetime', 'Lifetime'), ('month', 'Monthly'), ('week', 'Weekly'), ('day', 'Daily')], db_default='month', max_length=16)),
                ('organization_id', models.CharField(max_length=64)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(blank=True, null=True)),
                ('limit_nanos', models.BigIntegerField(blank=True, null=True)),
                ('posted_nanos', models.BigIntegerField(default=0)),
                ('pending_nanos', models.BigIntegerField(default=0)),
                ('funded_nanos', models.BigIntegerField(default=0)),
            ],
            options={
                'db_table': 'credit_budget',
                'indexes': [models.Index(fields=['organization_id'], name='budget_by_organization'), models.Index(condition=models.Q(('period__in', ('week', 'day'))), fields=['organization_id'], name='budget_fine_by_organization'), models.Index(condition=models.Q(('kind', 'balance')), fields=['organization_id'], name='budget_balance_by_organization'), models.Index(condition=models.Q(('limit_nanos__isnull', False), models.Q(('period', 'lifetime'), _negated=True)), fields=['starts_at'], name='budget_limited_by_period')],
                'constraints': [models.UniqueConstraint(fields=('budget_id', 'starts_at'), name='budget_is_unique'), models.CheckConstraint(condition=models.Q(('pending_nanos__gte', 0), ('posted_nanos__gte', 0)), name='budget_not_negative'), models.CheckConstraint(condition=models.Q(models.Q(('ends_at__isnull', True), ('kind', 'balance')), models.Q(models.Q(('kind', 'balance'), _negated=True), ('ends_at__isnull', False), ('funded_nanos', 0)), _connector='OR'), name='budget_has_its_period'), models.CheckConstraint(condition=models.Q(models.Q(('kind', 'balance'), ('period', 'lifetime')), models.Q(models.Q(('kind', 'balance'), _negated=True), ('period__in', ['month', 'week', 'day'])), _connector='OR'), name='budget_period_is_known')],
            },
        ),
        migrations.CreateModel(
            name='Lease',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ask_id', models.CharField(max_length=64)),
                ('budget', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='leases', to='credit.budget')),
                ('organization_id', models.CharField(max_length=64)),
                ('gateway_id', models.CharField(max_length=64)),
                ('granted_nanos', models.BigIntegerField()),
                ('keep_nanos', models.BigIntegerField()),
                ('settled_nanos', models.BigIntegerField(default=0)),
                ('granted_at', models.DateTimeField()),
                ('admits_from', models.DateTimeField()),
                ('admits_until', models.DateTimeField()),
                ('recalled_at', models.DateTimeField(blank=True, null=True)),
                ('stopped_at', models.DateTimeField(blank=True, null=True)),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
                ('voided_at', models.DateTimeField(blank=True, null=True)),
                ('lineage', models.CharField(max_length=16)),
                ('overrun_seen_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'credit_lease',
                'indexes': [models.Index(condition=models.Q(('closed_at__isnull', True)), fields=['budget'], name='lease_open_by_budget'), models.Index(condition=models.Q(('closed_at__isnull', True), ('recalled_at__isnull', False)), fields=['gateway_id'], name='lease_recalled_by_gateway'), models.Index(condition=models.Q(('closed_at__isnull', True)), fields=['admits_until'], name='lease_open_by_end')],
                'constraints': [models.UniqueConstraint(fields=('ask_id',), name='lease_is_granted_once'), models.CheckConstraint(condition=models.Q(('keep_nanos__gte', 0), ('keep_nanos__lte', models.F('granted_nanos')), ('settled_nanos__gte', 0)), name='lease_keeps_within_grant'), models.CheckConstraint(condition=models.Q(('voided_at__isnull', True), ('closed_at__isnull', False), _connector='OR'), name='lease_voided_is_closed')],
            },
        ),
        migrations.CreateModel(
            name='CreditGrant',
            fields=[
                ('id', models.CharField(default=billing.credit.models.new_grant_id, max_length=64, primary_key=True, serialize=False)),
                ('organization_id', models.CharField(max_length=64)),
                ('kind', models.CharField(choices=[('promotional', 'Promotional'), ('prepaid', 'Prepaid')], max_length=16)),
                ('amount_nanos', models.BigIntegerField()),
                ('account', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='grant', to='ledger.account')),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('expired_nanos', models.BigIntegerField(default=0)),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
                ('reversed_at', models.DateTimeField(blank=True, null=True)),
                ('idempotency_key', models.CharField(max_length=200)),
                ('reason', models.CharField(max_length=200)),
                ('granted_by', models.CharField(max_length=254)),
                ('granted_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'credit_grant',
                'indexes': [models.Index(condition=models.Q(('closed_at__isnull', True)), fields=['expires_at'], name='grant_open_by_expiry')],
                'constraints': [models.UniqueConstraint(fields=('organization_id', 'idempotency_key'), name='grant_is_made_once'), models.CheckConstraint(condition=models.Q(('amount_nanos__gt', 0), ('expired_nanos__gte', 0), ('expired_nanos__lte', models.F('amount_nanos'))), name='grant_is_positive')],
            },
        ),
        migrations.CreateModel(
            name='Payment',
            fields=[
                ('id', models.CharField(default=billing.credit.models.new_payment_id, max_length=64, primary_key=True, serialize=False)),
                ('organization_id', models.CharField(max_length=64)),
                ('amount_nanos', models.BigIntegerField()),
                ('tax_nanos', models.BigIntegerField(default=0)),
                ('settled_nanos', models.BigIntegerField()),
                ('grant', models.OneToOneField(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='payment', to='credit.creditgrant')),
                ('idempotency_key', models.CharField(max_length=200)),
                ('reason', models.CharField(max_length=200)),
                ('recorded_by', models.CharField(max_length=254)),
                ('received_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'credit_payment',
                'constraints': [models.UniqueConstraint(fields=('organization_id', 'idempotency_key'), name='payment_is_made_once'), models.CheckConstraint(condition=models.Q(('amount_nanos__gt', 0), ('settled_nanos__gte', 0), ('tax_nanos__gte', 0), ('tax_nanos__lt', models.F('amount_nanos'))), name='payment_is_positive')],
            },
        ),
        migrations.CreateModel(
            name='UnpostedUsage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organization_id', models.CharField(max_length=64)),
                ('accounted_on', models.DateField()),
                ('received_before', models.DateTimeField(null=True)),
                ('nanos', models.BigIntegerField()),
            ],
            options={
                'verbose_name_plural': 'unposted usage',
                'db_table': 'credit_unposted_usage',
                'constraints': [models.UniqueConstraint(fields=('organization_id', 'accounted_on', 'received_before'), name='unposted_usage_is_unique', nulls_distinct=False)],
            },
        ),
        migrations.CreateModel(
            name='Welcome',
            fields=[
                ('user_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('grant', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, to='credit.creditgrant')),
                ('given_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'credit_welcome',
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='payment',
            trigger=pgtrigger.compiler.Trigger(name='payment_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='155c533bd1bc62800c904c71ed8ade77fb0c3a9a', operation='UPDATE OR DELETE', pgid='pgtrigger_payment_stays_c9a18', table='credit_payment', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='payment',
            trigger=pgtrigger.compiler.Trigger(name='payment_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='576ba06db2c55b8ec4faddb6eff2589f426887b4', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_payment_all_stay_b3dff', table='credit_payment', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='welcome',
            trigger=pgtrigger.compiler.Trigger(name='welcome_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='62da4a7736f88c638e4779c252c8b9b3d01a88b6', operation='UPDATE OR DELETE', pgid='pgtrigger_welcome_stays_49e17', table='credit_welcome', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='welcome',
            trigger=pgtrigger.compiler.Trigger(name='welcome_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='4a95b23c26a353b461ce61fe5bd904dbd3150295', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_welcome_all_stay_38fa1', table='credit_welcome', when='BEFORE')),
        ),
        migrations.RunSQL(ROOM_TO_UPDATE),
        migrations.RunSQL(AUTHORIZATION.read_text()),
    ]

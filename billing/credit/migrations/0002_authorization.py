"""Authorization apart from accounting: a row per budget and period, grants that expire in parts.

What was charged and what is left are carried over to the nano; open leases end, since their
gateways begin anew with the new contract.
"""

import pathlib

import billing.credit.models
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

AUTHORIZATION = pathlib.Path(__file__).parent.parent / "sql" / "authorization.sql"

KEEP_OLD = """
CREATE TABLE credit_old_spend AS SELECT * FROM credit_spend;
DROP TABLE credit_lease, credit_spend, credit_budget;
"""

# Balance = credit in the ledger less what is owed; posted = all that was ever charged. The months
# are filled from the events (metering/migrations/0003).
FILL = """
INSERT INTO credit_budget (budget_id, kind, organization_id, starts_at, ends_at, limit_nanos,
    posted_nanos, pending_nanos, funded_nanos)
SELECT 'balance:' || id, 'balance', id, '1970-01-01 00:00+00', NULL,
    CASE billing_mode WHEN 'prepaid' THEN funded END, posted, 0, funded
FROM (
    SELECT organization.id, organization.billing_mode, spent.nanos AS posted,
        spent.nanos - coalesce(sum(account.balance_nanos), 0)::bigint AS funded
    FROM tenants_organization AS organization
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(charged_nanos), 0)::bigint AS nanos FROM credit_old_spend
        WHERE budget_id = organization.id
    ) AS spent
    LEFT JOIN ledger_account AS account ON account.organization_id = organization.id
        AND account.kind IN ('customer_balance', 'promotional_credit', 'accounts_receivable')
    GROUP BY organization.id, spent.nanos
) AS every;

UPDATE credit_grant SET expired_nanos = taken.nanos FROM (
    SELECT 'expiry:' || id AS source, id FROM credit_grant WHERE closed_at IS NOT NULL
) AS closed
JOIN ledger_transaction AS expiry ON expiry.source = closed.source
JOIN LATERAL (
    SELECT sum(nanos)::bigint AS nanos FROM ledger_entry
    WHERE transaction_id = expiry.id AND nanos > 0
) AS taken ON true
WHERE credit_grant.id = closed.id;

DROP TABLE credit_old_spend;

-- Who was welcomed before is not welcomed again: the first owner of each organization that was.
INSERT INTO credit_welcome (user_id, grant_id, given_at)
SELECT DISTINCT ON (seat.user_id) seat.user_id, welcome.id, welcome.granted_at
FROM credit_grant AS welcome
JOIN LATERAL (
    SELECT user_id FROM tenants_membership
    WHERE organization_id = welcome.organization_id AND role = 'owner'
    ORDER BY created_at, id LIMIT 1
) AS seat ON true
WHERE welcome.idempotency_key = 'sign-up'
ORDER BY seat.user_id, welcome.granted_at;
"""

# Their figures move all the time; with room in the page no index is touched.
ROOM_TO_UPDATE = """
ALTER TABLE credit_budget SET (fillfactor = 50);
ALTER TABLE credit_lease SET (fillfactor = 50);
"""

DROP_FUNCTIONS = """
DROP FUNCTION IF EXISTS credit_lock_charged, credit_recall;
DROP FUNCTION credit_held, credit_lock, credit_open_budgets, credit_available, credit_grant_size,
    credit_grant_leases, credit_take_back, credit_charge, credit_recall_overdrawn, credit_fund,
    credit_set_limits, credit_void_lease, credit_see_overrun, credit_forget_leases;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("credit", "0001_initial"),
        ("ledger", "0003_held_by_the_database"),
        ("tenants", "0001_initial"),
        ("keys", "0001_initial"),
    ]

    operations = [
        migrations.RunSQL(
            KEEP_OLD,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.DeleteModel("Lease"),
                migrations.DeleteModel("Budget"),
                migrations.DeleteModel("Spend"),
            ],
        ),
        migrations.RenameField("creditgrant", "expired_at", "closed_at"),
        migrations.AddField("creditgrant", "expired_nanos", models.BigIntegerField(default=0)),
        migrations.AddField("creditgrant", "reversed_at", models.DateTimeField(blank=True, null=True)),
        migrations.RemoveConstraint("creditgrant", "grant_is_positive"),
        migrations.AddConstraint(
            model_name='creditgrant',
            constraint=models.CheckConstraint(condition=models.Q(('amount_nanos__gt', 0), ('expired_nanos__gte', 0), ('expired_nanos__lte', models.F('amount_nanos'))), name='grant_is_positive'),
        ),
        migrations.AddIndex(
            model_name='creditgrant',
            index=models.Index(condition=models.Q(('closed_at__isnull', True)), fields=['expires_at'], name='grant_open_by_expiry'),
        ),
        migrations.CreateModel(
            name='Budget',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('budget_id', models.CharField(db_collation='C', max_length=64)),
                ('kind', models.CharField(choices=[('balance', 'Balance'), ('organization', 'Organization, monthly'), ('project', 'Project, monthly'), ('key', 'API key, monthly')], max_length=16)),
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
                'indexes': [models.Index(fields=['organization_id'], name='budget_by_organization')],
                'constraints': [models.UniqueConstraint(fields=('budget_id', 'starts_at'), name='budget_is_unique'), models.CheckConstraint(condition=models.Q(('pending_nanos__gte', 0), ('posted_nanos__gte', 0)), name='budget_not_negative'), models.CheckConstraint(condition=models.Q(models.Q(('ends_at__isnull', True), ('kind', 'balance')), models.Q(models.Q(('kind', 'balance'), _negated=True), ('ends_at__isnull', False), ('funded_nanos', 0)), _connector='OR'), name='budget_has_its_period')],
            },
        ),
        migrations.CreateModel(
            name='Lease',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ask_id', models.CharField(max_length=64)),
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
                ('budget', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='leases', to='credit.budget')),
            ],
            options={
                'db_table': 'credit_lease',
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
                ('idempotency_key', models.CharField(max_length=200)),
                ('reason', models.CharField(max_length=200)),
                ('recorded_by', models.CharField(max_length=254)),
                ('received_at', models.DateTimeField()),
                ('grant', models.OneToOneField(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='payment', to='credit.creditgrant')),
            ],
            options={
                'db_table': 'credit_payment',
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
                ('given_at', models.DateTimeField()),
                ('grant', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, to='credit.creditgrant')),
            ],
            options={
                'db_table': 'credit_welcome',
            },
        ),
        migrations.AddIndex(
            model_name='lease',
            index=models.Index(condition=models.Q(('closed_at__isnull', True)), fields=['budget'], name='lease_open_by_budget'),
        ),
        migrations.AddIndex(
            model_name='lease',
            index=models.Index(condition=models.Q(('closed_at__isnull', True), ('recalled_at__isnull', False)), fields=['gateway_id'], name='lease_recalled_by_gateway'),
        ),
        migrations.AddIndex(
            model_name='lease',
            index=models.Index(condition=models.Q(('closed_at__isnull', True)), fields=['admits_until'], name='lease_open_by_end'),
        ),
        migrations.AddConstraint(
            model_name='lease',
            constraint=models.CheckConstraint(condition=models.Q(('keep_nanos__gte', 0), ('keep_nanos__lte', models.F('granted_nanos')), ('settled_nanos__gte', 0)), name='lease_keeps_within_grant'),
        ),
        migrations.AddConstraint(
            model_name='lease',
            constraint=models.CheckConstraint(condition=models.Q(('voided_at__isnull', True), ('closed_at__isnull', False), _connector='OR'), name='lease_voided_is_closed'),
        ),
        migrations.AddConstraint(
            model_name='payment',
            constraint=models.UniqueConstraint(fields=('organization_id', 'idempotency_key'), name='payment_is_made_once'),
        ),
        migrations.AddConstraint(
            model_name='payment',
            constraint=models.CheckConstraint(condition=models.Q(('amount_nanos__gt', 0), ('settled_nanos__gte', 0), ('tax_nanos__gte', 0), ('tax_nanos__lt', models.F('amount_nanos'))), name='payment_is_positive'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='payment',
            trigger=pgtrigger.compiler.Trigger(name='payment_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='155c533bd1bc62800c904c71ed8ade77fb0c3a9a', operation='UPDATE OR DELETE', pgid='pgtrigger_payment_stays_c9a18', table='credit_payment', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='payment',
            trigger=pgtrigger.compiler.Trigger(name='payment_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='576ba06db2c55b8ec4faddb6eff2589f426887b4', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_payment_all_stay_b3dff', table='credit_payment', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name="lease",
            constraint=models.UniqueConstraint(fields=("ask_id",), name="lease_is_granted_once"),
        ),
        migrations.RunSQL(ROOM_TO_UPDATE, migrations.RunSQL.noop),
        migrations.RunSQL(AUTHORIZATION.read_text(), DROP_FUNCTIONS),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]

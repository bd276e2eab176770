import pathlib

import billing.fields
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
import serving.contract.ids
from django.db import migrations, models

BOOKS = pathlib.Path(__file__).parent.parent / "sql" / "books.sql"
ACCOUNTS_STAY = """
CREATE FUNCTION ledger_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: the books are never changed, only added to',
        TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER ledger_account_stays BEFORE DELETE ON ledger_account
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_change();
"""
REFUSE_UNBALANCED = """
CREATE FUNCTION ledger_refuse_unbalanced() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    checked text := CASE TG_TABLE_NAME
        WHEN 'ledger_entry' THEN to_jsonb(NEW) ->> 'transaction_id'
        ELSE to_jsonb(NEW) ->> 'id' END;
    entry_count bigint;
    total numeric;
BEGIN
    SELECT count(*), coalesce(sum(nanos), 0) INTO entry_count, total
        FROM ledger_entry WHERE transaction_id = checked;
    IF entry_count < 2 OR total <> 0 THEN
        RAISE EXCEPTION 'ledger transaction % has % entries that sum to % nanos, not to zero',
            checked, entry_count, total USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER ledger_entry_is_balanced AFTER INSERT ON ledger_entry
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_refuse_unbalanced();
CREATE CONSTRAINT TRIGGER ledger_transaction_is_balanced AFTER INSERT ON ledger_transaction
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_refuse_unbalanced();
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name='Account',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organization_id', models.CharField(max_length=64)),
                ('kind', models.CharField(choices=[('cash', 'Cash (asset)'), ('accounts_receivable', 'Accounts receivable (asset)'), ('customer_balance', 'Customer balance (liability)'), ('promotional_credit', 'Promotional credit (liability)'), ('tax_payable', 'Tax payable (liability)'), ('revenue', 'Revenue (income)'), ('breakage', 'Breakage of expired prepayments (income)'), ('rounding', 'Rounding of invoices (income)'), ('promotion_expense', 'Promotion (expense)'), ('bad_debt', 'Debts written off (expense)')], max_length=32)),
                ('owner_id', models.CharField(blank=True, default='', max_length=64)),
                ('balance_nanos', models.BigIntegerField(default=0)),
            ],
            options={
                'db_table': 'ledger_account',
                'constraints': [models.UniqueConstraint(fields=('organization_id', 'kind', 'owner_id'), name='account_is_unique'), models.CheckConstraint(condition=models.Q(('kind__in', ['cash', 'accounts_receivable', 'customer_balance', 'promotional_credit', 'tax_payable', 'revenue', 'breakage', 'rounding', 'promotion_expense', 'bad_debt'])), name='account_kind_is_known')],
            },
        ),
        migrations.CreateModel(
            name='Transaction',
            fields=[
                ('id', models.CharField(default=serving.contract.ids.new_id, max_length=64, primary_key=True, serialize=False)),
                ('source', models.CharField(max_length=200, unique=True)),
                ('kind', models.CharField(choices=[('usage', 'Usage'), ('grant', 'Credit grant'), ('grant_reversal', 'Reversal of a grant'), ('payment', 'Payment'), ('allocation', 'Credit applied to a debt'), ('expiry', 'Credit expiry'), ('expiry_reversal', 'Expiry undone by late usage'), ('refund', 'Refund'), ('refund_reversal', 'Refund that came back'), ('dispute', 'Dispute'), ('dispute_reversal', 'Dispute won'), ('tax', 'Tax'), ('write_off', 'Write-off'), ('rounding', 'Rounding of an invoice'), ('correction', 'Correction')], max_length=16)),
                ('organization_id', models.CharField(max_length=64)),
                ('posted_at', models.DateTimeField()),
                ('accounted_on', models.DateField()),
                ('created_xid', billing.fields.Xid8Field(db_default=billing.fields.CurrentXid(), editable=False, null=True)),
            ],
            options={
                'db_table': 'ledger_transaction',
                'indexes': [models.Index(fields=['organization_id', 'posted_at'], name='transaction_by_org'), models.Index(condition=models.Q(('kind', 'correction')), fields=['accounted_on'], name='transaction_correcting')],
            },
        ),
        migrations.CreateModel(
            name='Entry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('transaction', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='entries', to='ledger.transaction')),
                ('account', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='entries', to='ledger.account')),
                ('nanos', models.BigIntegerField()),
            ],
            options={
                'verbose_name_plural': 'entries',
                'db_table': 'ledger_entry',
                'indexes': [models.Index(fields=['account', 'id'], include=('nanos',), name='entry_by_account')],
                'constraints': [models.CheckConstraint(condition=models.Q(('nanos', 0), _negated=True), name='entry_moves_money')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='account',
            trigger=pgtrigger.compiler.Trigger(name='account_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='65e8bfabe66af510ef1c1fd4aa3d37c9112d7024', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_account_all_stay_12fc9', table='ledger_account', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='transaction',
            trigger=pgtrigger.compiler.Trigger(name='transaction_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='ece9899d035b8f10f802812896c9f73d0aec8e61', operation='UPDATE OR DELETE', pgid='pgtrigger_transaction_stays_854c0', table='ledger_transaction', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='transaction',
            trigger=pgtrigger.compiler.Trigger(name='transaction_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='6051d90ebe495052cb3e3ba3c9113dc84f73a432', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_transaction_all_stay_ad2b2', table='ledger_transaction', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='entry',
            trigger=pgtrigger.compiler.Trigger(name='entry_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='43996b764d6e76af4df18f45dd07d60c3efef288', operation='UPDATE OR DELETE', pgid='pgtrigger_entry_stays_bd4f3', table='ledger_entry', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='entry',
            trigger=pgtrigger.compiler.Trigger(name='entry_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='97c493246a0f110e7cc43f119d7af8bab2e889a4', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_entry_all_stay_4a40c', table='ledger_entry', when='BEFORE')),
        ),
        migrations.RunSQL(ACCOUNTS_STAY),
        migrations.RunSQL(REFUSE_UNBALANCED),
        migrations.RunSQL(BOOKS.read_text()),
    ]

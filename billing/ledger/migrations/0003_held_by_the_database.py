"""The database holds more of the books: sealed transactions, balances moved by entries alone."""

import pathlib

import billing.fields
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

BOOKS = pathlib.Path(__file__).parent.parent / "sql" / "books.sql"

DROP_OLD_TRIGGERS = """
DROP TRIGGER ledger_entry_is_immutable ON ledger_entry;
DROP TRIGGER ledger_transaction_is_immutable ON ledger_transaction;
"""

# Transactions from before have no xid, so that no entry joins them.
ADD_COLUMNS = """
ALTER TABLE ledger_transaction ADD COLUMN accounted_on date, ADD COLUMN created_xid xid8;
UPDATE ledger_transaction SET accounted_on = (posted_at AT TIME ZONE 'UTC')::date;
ALTER TABLE ledger_transaction ALTER COLUMN accounted_on SET NOT NULL,
    ALTER COLUMN created_xid SET DEFAULT pg_current_xact_id();
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0002_immutable_and_balanced")]

    operations = [
        migrations.RunSQL(DROP_OLD_TRIGGERS, migrations.RunSQL.noop),
        migrations.RunSQL(
            ADD_COLUMNS,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddField("transaction", "accounted_on", models.DateField()),
                migrations.AddField(
                    "transaction",
                    "created_xid",
                    billing.fields.Xid8Field(
                        db_default=billing.fields.CurrentXid(), editable=False, null=True
                    ),
                ),
            ],
        ),
        migrations.AlterField(
            model_name="transaction",
            name="kind",
            field=models.CharField(choices=[('usage', 'Usage'), ('grant', 'Credit grant'), ('grant_reversal', 'Reversal of a grant'), ('payment', 'Payment'), ('allocation', 'Credit applied to a debt'), ('expiry', 'Credit expiry'), ('expiry_reversal', 'Expiry undone by late usage'), ('refund', 'Refund'), ('tax', 'Tax'), ('write_off', 'Write-off'), ('rounding', 'Rounding of an invoice'), ('correction', 'Correction')], max_length=16),
        ),
        migrations.AlterField(
            model_name="account",
            name="kind",
            field=models.CharField(choices=[('cash', 'Cash (asset)'), ('accounts_receivable', 'Accounts receivable (asset)'), ('customer_balance', 'Customer balance (liability)'), ('promotional_credit', 'Promotional credit (liability)'), ('tax_payable', 'Tax payable (liability)'), ('revenue', 'Revenue (income)'), ('breakage', 'Breakage of expired prepayments (income)'), ('rounding', 'Rounding of invoices (income)'), ('promotion_expense', 'Promotion (expense)'), ('bad_debt', 'Debts written off (expense)')], max_length=32),
        ),
        migrations.RemoveConstraint("account", "account_kind_is_known"),
        migrations.AddConstraint("account", models.CheckConstraint(condition=models.Q(('kind__in', ['cash', 'accounts_receivable', 'customer_balance', 'promotional_credit', 'tax_payable', 'revenue', 'breakage', 'rounding', 'promotion_expense', 'bad_debt'])), name='account_kind_is_known')),
        migrations.RunSQL(BOOKS.read_text(), migrations.RunSQL.noop),
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
    ]

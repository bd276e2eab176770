from django.db import migrations, models

# What each transaction added to what funds its organization's balance: credit of it less debt.
# Usage adds nothing, and the reversal of a grant takes away the credit, whatever it came from.
FILL = """
ALTER TABLE ledger_transaction DISABLE TRIGGER USER;

UPDATE ledger_transaction AS posted SET funded_nanos = moved.nanos
FROM (
    SELECT entry.transaction_id, -sum(entry.nanos)::bigint AS nanos
    FROM ledger_entry AS entry
    JOIN ledger_account AS account ON account.id = entry.account_id
    JOIN ledger_transaction AS cause ON cause.id = entry.transaction_id
    WHERE cause.kind <> 'usage' AND (
        account.kind IN ('customer_balance', 'promotional_credit')
        OR account.kind = 'accounts_receivable' AND cause.kind <> 'grant_reversal'
    )
    GROUP BY 1
) AS moved
WHERE posted.id = moved.transaction_id AND moved.nanos <> 0;

ALTER TABLE ledger_transaction ENABLE TRIGGER USER;
"""


class Migration(migrations.Migration):
    dependencies = [
        ('ledger', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='transaction',
            name='funded_nanos',
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('ledger', '0002_funded'),
    ]

    operations = [
        migrations.AlterField(
            model_name='account',
            name='kind',
            field=models.CharField(choices=[('cash', 'Cash'), ('accounts_receivable', 'Accounts receivable'), ('customer_balance', 'Customer balance'), ('promotional_credit', 'Promotional credit'), ('tax_payable', 'Tax payable'), ('revenue', 'Revenue'), ('breakage', 'Breakage of expired prepayments'), ('rounding', 'Rounding of invoices'), ('promotion_expense', 'Promotion'), ('bad_debt', 'Debts written off')], max_length=32),
        ),
        # A run that gave up waiting leaves an index that nothing reads.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS transaction_by_day', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='transaction',
            index=models.Index(fields=['accounted_on', 'posted_at'], name='transaction_by_day'),
        ),
    ]

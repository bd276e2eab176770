import pathlib

from django.db import migrations, models

LIMITS = pathlib.Path(__file__).parent.parent / "sql" / "limits.sql"


class Migration(migrations.Migration):
    dependencies = [
        ('credit', '0002_funded_by_the_ledger'),
        ('organizations', '0003_credit_limit'),
    ]

    operations = [
        migrations.AddField(
            model_name='budget',
            name='credit_limit_nanos',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='budget',
            name='is_credit_limit_suspended',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.RunSQL(LIMITS.read_text()),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.CheckConstraint(
                condition=models.Q(('credit_limit_nanos__gte', 0), models.Q(('kind', 'balance'), models.Q(('credit_limit_nanos', 0), ('is_credit_limit_suspended', False)), _connector='OR')),
                name='budget_credit_limit_is_a_balances',
            ),
        ),
    ]

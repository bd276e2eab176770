import pathlib

from django.db import migrations

FUNDED = pathlib.Path(__file__).parent.parent / "sql" / "funded.sql"
UNDO = """
DROP TRIGGER credit_transaction_adds_funds ON ledger_transaction;
DROP FUNCTION credit_add_funds();
"""


class Migration(migrations.Migration):
    dependencies = [
        ('credit', '0001_initial'),
        ('ledger', '0002_funded'),
    ]

    operations = [
        migrations.RunSQL(FUNDED.read_text(), UNDO),
    ]

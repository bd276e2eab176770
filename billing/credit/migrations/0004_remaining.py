import pathlib

from django.db import migrations, models

REMAINING = pathlib.Path(__file__).parent.parent / "sql" / "remaining.sql"
UNDO = """
DROP TRIGGER credit_account_marks_grant ON ledger_account;
DROP FUNCTION credit_mark_remaining();
"""


class Migration(migrations.Migration):
    dependencies = [
        ('credit', '0003_credit_limit'),
        ('ledger', '0002_funded'),
    ]

    operations = [
        migrations.AddField(
            model_name='creditgrant',
            name='has_remaining',
            field=models.BooleanField(db_default=True, editable=False),
        ),
        migrations.RunSQL(REMAINING.read_text(), UNDO),
    ]

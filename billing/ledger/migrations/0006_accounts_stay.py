"""Accounts are emptied by nobody, their owner included."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0005_statements'),
    ]

    operations = [
        pgtrigger.migrations.AddTrigger(
            model_name='account',
            trigger=pgtrigger.compiler.Trigger(name='account_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='65e8bfabe66af510ef1c1fd4aa3d37c9112d7024', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_account_all_stay_12fc9', table='ledger_account', when='BEFORE')),
        ),
    ]

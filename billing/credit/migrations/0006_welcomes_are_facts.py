"""Who had the welcome credit is written once, and never taken back."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('credit', '0005_charged_in_one_pass'),
    ]

    operations = [
        pgtrigger.migrations.AddTrigger(
            model_name='welcome',
            trigger=pgtrigger.compiler.Trigger(name='welcome_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='62da4a7736f88c638e4779c252c8b9b3d01a88b6', operation='UPDATE OR DELETE', pgid='pgtrigger_welcome_stays_49e17', table='credit_welcome', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='welcome',
            trigger=pgtrigger.compiler.Trigger(name='welcome_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='4a95b23c26a353b461ce61fe5bd904dbd3150295', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_welcome_all_stay_38fa1', table='credit_welcome', when='BEFORE')),
        ),
    ]

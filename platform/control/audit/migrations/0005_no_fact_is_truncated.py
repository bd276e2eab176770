"""Deeds, links and proofs are emptied by nobody, their owner included."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('audit', '0004_chain'),
    ]

    operations = [
        pgtrigger.migrations.AddTrigger(
            model_name='deed',
            trigger=pgtrigger.compiler.Trigger(name='deed_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='057f9ced5cc3c267d775119e8159928760e2b37d', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_deed_all_stay_8cb37', table='audit_entry', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='link',
            trigger=pgtrigger.compiler.Trigger(name='link_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='972e2f31b9ef4734e193aec2cc389050ead99246', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_link_all_stay_9c19d', table='audit_link', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='proof',
            trigger=pgtrigger.compiler.Trigger(name='proof_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='555c799812e00d379cb00591f0c50950a2a02a58', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_proof_all_stay_8b454', table='audit_proof', when='BEFORE')),
        ),
    ]

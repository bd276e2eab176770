"""A gateway's name is written once, for the tables' owner too."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('gateways', '0001_initial'),
    ]

    operations = [
        pgtrigger.migrations.AddTrigger(
            model_name='namedgateway',
            trigger=pgtrigger.compiler.Trigger(name='named_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='76490b58b19337d24cb87834b1aba9bd92f29b4e', operation='UPDATE OR DELETE', pgid='pgtrigger_named_stays_701dc', table='gateways_named', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='namedgateway',
            trigger=pgtrigger.compiler.Trigger(name='named_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='55d49954e74b1b164b15adecdcbbcb6e97a02eea', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_named_all_stay_bc53a', table='gateways_named', when='BEFORE')),
        ),
    ]

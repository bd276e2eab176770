import django.utils.timezone
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name='NamedGateway',
            fields=[
                ('gateway_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=40)),
                ('named_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'gateways_named',
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='namedgateway',
            trigger=pgtrigger.compiler.Trigger(name='named_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='76490b58b19337d24cb87834b1aba9bd92f29b4e', operation='UPDATE OR DELETE', pgid='pgtrigger_named_stays_701dc', table='gateways_named', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='namedgateway',
            trigger=pgtrigger.compiler.Trigger(name='named_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='55d49954e74b1b164b15adecdcbbcb6e97a02eea', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_named_all_stay_bc53a', table='gateways_named', when='BEFORE')),
        ),
    ]

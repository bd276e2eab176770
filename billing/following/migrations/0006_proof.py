"""Each proving of the books leaves a row."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('following', '0005_heads'),
    ]

    operations = [
        migrations.CreateModel(
            name='Proof',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('made_at', models.DateTimeField()),
                ('check_count', models.IntegerField()),
                ('failed_count', models.IntegerField()),
            ],
            options={
                'db_table': 'following_proof',
                'ordering': ['-id'],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='proof',
            trigger=pgtrigger.compiler.Trigger(name='proof_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='993c26e07477fef5f2e4b29a4abbb493217f69f8', operation='UPDATE OR DELETE', pgid='pgtrigger_proof_stays_490e3', table='following_proof', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='proof',
            trigger=pgtrigger.compiler.Trigger(name='proof_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='82a996845ac3807e1693f403dd8355eaccb97ab9', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_proof_all_stay_5ca51', table='following_proof', when='BEFORE')),
        ),
    ]

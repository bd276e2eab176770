"""What events name is a fact as they are: a name that changed would change them all."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('metering', '0004_dead_letters_dismissed'),
    ]

    operations = [
        pgtrigger.migrations.AddTrigger(
            model_name='caller',
            trigger=pgtrigger.compiler.Trigger(name='caller_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='5fedaf997310019330b8ed61da5ed6795ea1b054', operation='UPDATE OR DELETE', pgid='pgtrigger_caller_stays_f977d', table='metering_caller', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='caller',
            trigger=pgtrigger.compiler.Trigger(name='caller_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='b54c13b1c1933e7ada30d07b066c84704a557967', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_caller_all_stay_f4a68', table='metering_caller', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='origin',
            trigger=pgtrigger.compiler.Trigger(name='origin_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='ce969482059b0ce2b34d5fde7ab7a20ec36151f8', operation='UPDATE OR DELETE', pgid='pgtrigger_origin_stays_88d35', table='metering_origin', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='origin',
            trigger=pgtrigger.compiler.Trigger(name='origin_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='640b0511d891096cad26a6298d633c09029ba801', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_origin_all_stay_27b76', table='metering_origin', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='supply',
            trigger=pgtrigger.compiler.Trigger(name='supply_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='be96488844482450cb728e783fd2f24716034122', operation='UPDATE OR DELETE', pgid='pgtrigger_supply_stays_f6631', table='metering_supply', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='supply',
            trigger=pgtrigger.compiler.Trigger(name='supply_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='58276fc126eb216ae54970e1fc7808304c4f4e1b', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_supply_all_stay_b6e9e', table='metering_supply', when='BEFORE')),
        ),
    ]

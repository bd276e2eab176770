import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name='DayRevenue',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('accounted_on', models.DateField()),
                ('supply_id', models.IntegerField()),
                ('nanos', models.BigIntegerField()),
            ],
            options={
                'verbose_name_plural': 'revenue by the day',
                'db_table': 'cockpit_day_revenue',
                'constraints': [models.UniqueConstraint(fields=('accounted_on', 'supply_id'), name='day_revenue_is_unique')],
            },
        ),
        migrations.CreateModel(
            name='KeptDay',
            fields=[
                ('day', models.DateField(primary_key=True, serialize=False)),
            ],
            options={
                'db_table': 'cockpit_kept_day',
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='dayrevenue',
            trigger=pgtrigger.compiler.Trigger(name='day_revenue_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='911626646cb33e806ee2b6da89f519bbe1577c50', operation='UPDATE OR DELETE', pgid='pgtrigger_day_revenue_stays_fb9f8', table='cockpit_day_revenue', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='dayrevenue',
            trigger=pgtrigger.compiler.Trigger(name='day_revenue_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='a7d96ceb834dc8326f81802d9edb093445fd4d0f', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_day_revenue_all_stay_90f52', table='cockpit_day_revenue', when='BEFORE')),
        ),
    ]

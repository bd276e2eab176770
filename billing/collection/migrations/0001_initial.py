from typing import Any

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

SCHEDULE = ((0, "retry"), (3, "retry"), (5, "retry"), (7, "retry"), (10, "limit"), (14, "suspend"))


def add_schedule(apps: Any, schema_editor: Any) -> None:
    """Add the schedule that collection begins with, and the one row of settings."""
    alias = schema_editor.connection.alias
    steps = apps.get_model("collection", "ScheduledStep").objects.using(alias)
    for days, kind in SCHEDULE:
        steps.create(days=days, kind=kind)
    apps.get_model("collection", "Settings").objects.using(alias).create(id=1)


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ('organizations', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='ScheduledStep',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('days', models.PositiveSmallIntegerField(unique=True, verbose_name='days after due')),
                ('kind', models.CharField(choices=[('retry', 'Charge or remind'), ('limit', 'Limit the service'), ('suspend', 'Suspend')], max_length=16)),
            ],
            options={
                'db_table': 'collection_scheduled_step',
                'constraints': [models.UniqueConstraint(condition=models.Q(('kind__in', ('limit', 'suspend'))), fields=('kind',), name='collection_measure_is_scheduled_once'), models.CheckConstraint(condition=models.Q(('kind', 'retry'), ('days__gte', 1), _connector='OR'), name='collection_measure_is_after_due'), models.CheckConstraint(condition=models.Q(('days__lte', 365), ('kind__in', ['retry', 'limit', 'suspend'])), name='collection_step_is_known')],
            },
        ),
        migrations.CreateModel(
            name='Settings',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('min_cents', models.PositiveIntegerField(default=100)),
                ('hour', models.PositiveSmallIntegerField(default=9)),
            ],
            options={
                'verbose_name_plural': 'settings',
                'db_table': 'collection_settings',
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='collection_settings_are_one'), models.CheckConstraint(condition=models.Q(('hour__lte', 23)), name='collection_hour_is_of_a_day')],
            },
        ),
        migrations.CreateModel(
            name='Case',
            fields=[
                ('organization', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='+', serialize=False, to='organizations.organization')),
                ('state', models.CharField(choices=[('current', 'Nothing overdue'), ('retrying', 'Being charged or reminded'), ('grace', 'Grace'), ('limited', 'Limited'), ('suspended', 'Suspended'), ('written_off', 'Written off')], default='current', max_length=16, verbose_name='status')),
                ('round', models.PositiveIntegerField(default=0)),
                ('invoice_id', models.CharField(blank=True, max_length=64)),
                ('due_cents', models.BigIntegerField(default=0)),
                ('opened_at', models.DateTimeField(blank=True, null=True)),
                ('last_days', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('last_on', models.DateField(blank=True, null=True)),
                ('not_before', models.DateField(blank=True, null=True)),
                ('next_at', models.DateTimeField(blank=True, null=True)),
                ('next_kind', models.CharField(blank=True, choices=[('retry', 'Charge or remind'), ('limit', 'Limit the service'), ('suspend', 'Suspend')], max_length=16)),
                ('next_on', models.DateField(blank=True, null=True)),
                ('limited_at', models.DateTimeField(blank=True, null=True)),
                ('suspended_at', models.DateTimeField(blank=True, null=True)),
                ('paused_at', models.DateTimeField(blank=True, null=True)),
                ('paused_until', models.DateField(blank=True, null=True)),
                ('pause_reason', models.CharField(blank=True, max_length=200)),
                ('waits_for', models.CharField(blank=True, max_length=16)),
            ],
            options={
                'db_table': 'collection_case',
                'indexes': [models.Index(fields=['next_at'], name='collection_case_by_next')],
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['current', 'retrying', 'grace', 'limited', 'suspended', 'written_off'])), name='collection_state_is_known'), models.CheckConstraint(condition=models.Q(('state__in', ('current', 'written_off')), models.Q(('opened_at__isnull', False), models.Q(('invoice_id', ''), _negated=True)), _connector='OR'), name='collection_case_has_its_invoice'), models.CheckConstraint(condition=models.Q(models.Q(('state', 'current'), _negated=True), models.Q(('limited_at__isnull', True), ('suspended_at__isnull', True)), _connector='OR'), name='collection_who_owes_nothing_is_served')],
            },
        ),
        migrations.CreateModel(
            name='Step',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organization_id', models.CharField(max_length=64)),
                ('invoice_id', models.CharField(blank=True, max_length=64)),
                ('round', models.PositiveIntegerField()),
                ('name', models.CharField(max_length=100)),
                ('outcome', models.CharField(max_length=40)),
                ('due_cents', models.BigIntegerField()),
                ('reason', models.CharField(blank=True, max_length=200)),
                ('taken_by', models.CharField(max_length=254)),
                ('taken_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'collection_step',
                'constraints': [models.UniqueConstraint(fields=('organization_id', 'round', 'invoice_id', 'name'), name='collection_step_is_taken_once')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='step',
            trigger=pgtrigger.compiler.Trigger(name='collection_step_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='daf719dbd502b5d7b36f155e20ecaacf50a2b3b6', operation='UPDATE OR DELETE', pgid='pgtrigger_collection_step_stays_79c46', table='collection_step', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='step',
            trigger=pgtrigger.compiler.Trigger(name='collection_step_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='c4ea586f0eeaf1268d9b2970689793a9978c55fb', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_collection_step_all_stay_50258', table='collection_step', when='BEFORE')),
        ),
        migrations.RunPython(add_schedule, migrations.RunPython.noop),
    ]

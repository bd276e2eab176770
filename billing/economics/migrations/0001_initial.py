import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ('following', '0001_initial'),
        ('pricing', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='EngineLife',
            fields=[
                ('id', models.AutoField(primary_key=True, serialize=False)),
                ('replica_id', models.CharField(max_length=64, unique=True)),
                ('deployment_id', models.CharField(max_length=64)),
                ('fleet_id', models.CharField(max_length=64)),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'verbose_name_plural': 'engine lives',
                'db_table': 'economics_engine_life',
                'indexes': [models.Index(fields=['started_at'], name='engine_life_by_start')],
            },
        ),
        migrations.CreateModel(
            name='EngineSample',
            fields=[
                ('pk', models.CompositePrimaryKey('life_id', 'at', blank=True, editable=False, primary_key=True, serialize=False)),
                ('life', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='samples', to='economics.enginelife')),
                ('at', models.DateTimeField()),
                ('input_tokens', models.BigIntegerField()),
                ('output_tokens', models.BigIntegerField()),
                ('cached_tokens', models.BigIntegerField()),
                ('requests', models.BigIntegerField()),
                ('probe_input_tokens', models.BigIntegerField()),
                ('probe_output_tokens', models.BigIntegerField()),
                ('probe_requests', models.BigIntegerField()),
                ('ready_seconds', models.BigIntegerField()),
                ('busy_seconds', models.BigIntegerField()),
                ('hourly_cost_nanos', models.BigIntegerField(blank=True, null=True)),
            ],
            options={
                'db_table': 'economics_engine_sample',
                'constraints': [models.CheckConstraint(condition=models.Q(('hourly_cost_nanos__isnull', True), ('hourly_cost_nanos__gte', 0), _connector='OR'), name='sample_cost_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='ReplayRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('book', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='pricing.pricebook')),
                ('organization_id', models.CharField(max_length=64, null=True)),
                ('prices', models.JSONField()),
                ('first_day', models.DateField()),
                ('last_day', models.DateField()),
                ('next_day', models.DateField()),
                ('gone_days', django.contrib.postgres.fields.ArrayField(base_field=models.DateField(), default=list, size=None)),
                ('requested_by', models.CharField(max_length=254)),
                ('requested_at', models.DateTimeField()),
                ('started_at', models.DateTimeField(null=True)),
                ('finished_at', models.DateTimeField(null=True)),
                ('cancelled_at', models.DateTimeField(null=True)),
                ('failure', models.CharField(blank=True, max_length=200)),
            ],
            options={
                'verbose_name': 'replay',
                'db_table': 'economics_replay_run',
                'ordering': ['-id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('last_day__gte', models.F('first_day'))), name='replay_has_days')],
            },
        ),
        migrations.CreateModel(
            name='ReplayLine',
            fields=[
                ('pk', models.CompositePrimaryKey('run_id', 'organization_id', 'variant_id', 'tier', blank=True, editable=False, primary_key=True, serialize=False)),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='lines', to='economics.replayrun')),
                ('organization_id', models.CharField(max_length=64)),
                ('variant_id', models.CharField(max_length=64)),
                ('tier', models.CharField(max_length=16)),
                ('request_count', models.BigIntegerField()),
                ('repriced_count', models.BigIntegerField()),
                ('contract_count', models.BigIntegerField()),
                ('charged_nanos', models.BigIntegerField()),
                ('draft_nanos', models.BigIntegerField()),
                ('waived_nanos', models.BigIntegerField()),
                ('draft_waived_nanos', models.BigIntegerField()),
            ],
            options={
                'db_table': 'economics_replay_line',
            },
        ),
        migrations.CreateModel(
            name='CostExport',
            fields=[
            ],
            options={
                'verbose_name': 'FOCUS export',
                'verbose_name_plural': 'FOCUS export',
                'proxy': True,
                'indexes': [],
                'constraints': [],
            },
            bases=('following.hourrollup',),
        ),
        migrations.CreateModel(
            name='JudgedHour',
            fields=[
                ('hour_at', models.DateTimeField(primary_key=True, serialize=False)),
                ('judged_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'economics_judged_hour',
            },
        ),
        migrations.CreateModel(
            name='Judgement',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('hour', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='judgements', to='economics.judgedhour')),
                ('replica_id', models.CharField(max_length=64)),
                ('deployment_id', models.CharField(max_length=64)),
                ('begins_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('is_sampled', models.BooleanField()),
                ('is_alarming', models.BooleanField()),
                ('engine_input_tokens', models.BigIntegerField()),
                ('engine_output_tokens', models.BigIntegerField()),
                ('event_count', models.BigIntegerField()),
                ('event_input_tokens', models.BigIntegerField()),
                ('event_output_tokens', models.BigIntegerField()),
                ('unexplained_input_tokens', models.BigIntegerField()),
                ('unexplained_output_tokens', models.BigIntegerField()),
                ('reasons', models.JSONField(default=list)),
            ],
            options={
                'db_table': 'economics_judgement',
                'constraints': [models.UniqueConstraint(fields=('hour', 'replica_id', 'is_sampled'), name='judged_once_an_hour')],
            },
        ),
    ]

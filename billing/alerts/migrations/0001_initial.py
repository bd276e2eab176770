import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name='Thresholds',
            fields=[
                ('budget_id', models.CharField(db_collation='C', max_length=80, primary_key=True, serialize=False)),
                ('organization_id', models.CharField(max_length=64)),
                ('percents', django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), size=None)),
            ],
            options={
                'verbose_name_plural': 'thresholds',
                'db_table': 'alerts_thresholds',
                'constraints': [models.CheckConstraint(condition=models.Q(('percents__len__lte', 10)), name='thresholds_are_few')],
            },
        ),
        migrations.CreateModel(
            name='AlertSettings',
            fields=[
                ('organization_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('low_balance_nanos', models.BigIntegerField(blank=True, null=True)),
                ('low_runway_days', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('unusual_factor', models.PositiveSmallIntegerField(blank=True, null=True)),
            ],
            options={
                'verbose_name_plural': 'alert settings',
                'db_table': 'alerts_settings',
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('low_balance_nanos__isnull', True), ('low_balance_nanos__gt', 0), _connector='OR'), models.Q(('low_runway_days__isnull', True), ('low_runway_days__range', (1, 365)), _connector='OR'), models.Q(('unusual_factor__isnull', True), ('unusual_factor__range', (2, 100)), _connector='OR')), name='alert_settings_are_sane')],
            },
        ),
        migrations.CreateModel(
            name='DaySpend',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organization_id', models.CharField(max_length=64)),
                ('day', models.DateField()),
                ('nanos', models.BigIntegerField()),
                ('busiest_hour_nanos', models.BigIntegerField()),
            ],
            options={
                'db_table': 'alerts_day_spend',
                'indexes': [models.Index(fields=['organization_id', 'day'], name='day_spend_by_org')],
                'constraints': [models.UniqueConstraint(fields=('day', 'organization_id'), name='day_spend_is_unique')],
            },
        ),
        migrations.CreateModel(
            name='Alert',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organization_id', models.CharField(max_length=64)),
                ('kind', models.CharField(choices=[('spending_limit.reached', 'Spending limit reached'), ('balance.low', 'Balance low'), ('spending.unusual', 'Unusual spending'), ('credit.expiring', 'Credit expires soon')], max_length=40)),
                ('budget_id', models.CharField(db_collation='C', max_length=80)),
                ('rule', models.CharField(max_length=64)),
                ('starts_at', models.DateTimeField()),
                ('created_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('is_told', models.BooleanField(default=True)),
                ('figures', models.JSONField()),
            ],
            options={
                'db_table': 'alerts_alert',
                'indexes': [models.Index(fields=['organization_id', '-created_at'], name='alert_by_organization')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('kind', 'budget_id', 'rule', 'starts_at'), name='alert_is_raised_once')],
            },
        ),
    ]

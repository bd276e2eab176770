import control.webhooks.models
import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ('tenants', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Endpoint',
            fields=[
                ('id', models.CharField(default=control.webhooks.models.new_endpoint_id, max_length=64, primary_key=True, serialize=False)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='endpoints', to='tenants.organization')),
                ('url', models.CharField(max_length=2000)),
                ('description', models.CharField(blank=True, max_length=200)),
                ('kinds', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=64), size=None)),
                ('is_enabled', models.BooleanField(default=True)),
                ('disabled_reason', models.CharField(blank=True, max_length=200)),
                ('failing_since', models.DateTimeField(null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('deleted_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'webhooks_endpoint',
                'indexes': [models.Index(condition=models.Q(('deleted_at__isnull', True)), fields=['organization', 'created_at'], name='endpoint_by_organization')],
                'constraints': [models.CheckConstraint(condition=models.Q(('kinds__len__gte', 1)), name='endpoint_is_told_something'), models.CheckConstraint(condition=models.Q(('deleted_at__isnull', True), ('is_enabled', False), _connector='OR'), name='deleted_endpoint_is_disabled')],
            },
        ),
        migrations.CreateModel(
            name='Secret',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='secrets', to='webhooks.endpoint')),
                ('sealed', models.TextField()),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'webhooks_secret',
                'constraints': [models.UniqueConstraint(condition=models.Q(('expires_at__isnull', True)), fields=('endpoint',), name='endpoint_has_one_newest_secret')],
            },
        ),
        migrations.CreateModel(
            name='Event',
            fields=[
                ('id', models.CharField(default=control.webhooks.models.new_event_id, max_length=64, primary_key=True, serialize=False)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.organization')),
                ('kind', models.CharField(max_length=64)),
                ('key', models.CharField(max_length=200)),
                ('body', models.TextField()),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'webhooks_event',
                'indexes': [models.Index(fields=['created_at'], name='webhook_event_by_time')],
                'constraints': [models.UniqueConstraint(fields=('organization', 'kind', 'key'), name='webhook_event_is_unique')],
            },
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.CharField(default=control.webhooks.models.new_delivery_id, max_length=64, primary_key=True, serialize=False)),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='webhooks.endpoint')),
                ('event', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='webhooks.event')),
                ('is_repeat', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('delivered_at', models.DateTimeField(null=True)),
                ('failed_at', models.DateTimeField(null=True)),
                ('attempt_count', models.PositiveIntegerField(default=0)),
                ('next_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'webhooks_delivery',
                'indexes': [models.Index(fields=['endpoint', '-created_at'], name='delivery_by_endpoint')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('is_repeat', False)), fields=('endpoint', 'event'), name='delivery_is_unique'), models.CheckConstraint(condition=models.Q(('delivered_at__isnull', True), ('failed_at__isnull', True), _connector='OR'), name='delivery_ends_once')],
            },
        ),
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('delivery', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='attempts', to='webhooks.delivery')),
                ('at', models.DateTimeField()),
                ('duration_ms', models.PositiveIntegerField()),
                ('status', models.PositiveSmallIntegerField(null=True)),
                ('error', models.CharField(blank=True, max_length=200)),
            ],
            options={
                'db_table': 'webhooks_attempt',
                'ordering': ['id'],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='event',
            trigger=pgtrigger.compiler.Trigger(name='webhook_event_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='61fab82d39cfdcc99994343ecc664b825eac5539', operation='UPDATE', pgid='pgtrigger_webhook_event_stays_55380', table='webhooks_event', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='attempt',
            trigger=pgtrigger.compiler.Trigger(name='attempt_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='abe8fa04479b674de77504cada8966ea6ddef5b2', operation='UPDATE', pgid='pgtrigger_attempt_stays_4cd78', table='webhooks_attempt', when='BEFORE')),
        ),
    ]

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
        ('organizations', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='WebhookDelivery',
            fields=[
                ('id', models.CharField(default=control.webhooks.models.new_delivery_id, max_length=64, primary_key=True, serialize=False)),
                ('is_repeat', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('delivered_at', models.DateTimeField(null=True)),
                ('failed_at', models.DateTimeField(null=True)),
                ('attempt_count', models.PositiveIntegerField(default=0)),
                ('next_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'webhooks_delivery',
            },
        ),
        migrations.CreateModel(
            name='WebhookAttempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField()),
                ('duration_ms', models.PositiveIntegerField()),
                ('status', models.PositiveSmallIntegerField(null=True)),
                ('error', models.CharField(blank=True, max_length=200)),
                ('delivery', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='attempts', to='webhooks.webhookdelivery')),
            ],
            options={
                'db_table': 'webhooks_attempt',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='WebhookEndpoint',
            fields=[
                ('id', models.CharField(default=control.webhooks.models.new_endpoint_id, max_length=64, primary_key=True, serialize=False)),
                ('url', models.CharField(max_length=2000)),
                ('description', models.CharField(blank=True, max_length=200)),
                ('event_types', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=64), size=None)),
                ('is_enabled', models.BooleanField(default=True)),
                ('disabled_reason', models.CharField(blank=True, max_length=200)),
                ('failing_since', models.DateTimeField(null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('deleted_at', models.DateTimeField(null=True)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='endpoints', to='organizations.organization')),
            ],
            options={
                'db_table': 'webhooks_endpoint',
            },
        ),
        migrations.AddField(
            model_name='webhookdelivery',
            name='endpoint',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='webhooks.webhookendpoint'),
        ),
        migrations.CreateModel(
            name='WebhookEvent',
            fields=[
                ('id', models.CharField(default=control.webhooks.models.new_event_id, max_length=64, primary_key=True, serialize=False)),
                ('event_type', models.CharField(max_length=64)),
                ('key', models.CharField(max_length=200)),
                ('body', models.TextField()),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='organizations.organization')),
            ],
            options={
                'db_table': 'webhooks_event',
            },
        ),
        migrations.AddField(
            model_name='webhookdelivery',
            name='event',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='webhooks.webhookevent'),
        ),
        migrations.CreateModel(
            name='WebhookSecret',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sealed', models.TextField()),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField(null=True)),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='secrets', to='webhooks.webhookendpoint')),
            ],
            options={
                'db_table': 'webhooks_secret',
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='webhookattempt',
            trigger=pgtrigger.compiler.Trigger(name='attempt_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='ff412d02cc48dc8d6d04486130b651ffd26d18a2', operation='UPDATE', pgid='pgtrigger_attempt_stays_e0907', table='webhooks_attempt', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='webhookendpoint',
            index=models.Index(condition=models.Q(('deleted_at__isnull', True)), fields=['organization', 'created_at'], name='endpoint_by_organization'),
        ),
        migrations.AddConstraint(
            model_name='webhookendpoint',
            constraint=models.CheckConstraint(condition=models.Q(('event_types__len__gte', 1)), name='endpoint_is_told_something'),
        ),
        migrations.AddConstraint(
            model_name='webhookendpoint',
            constraint=models.CheckConstraint(condition=models.Q(('deleted_at__isnull', True), ('is_enabled', False), _connector='OR'), name='deleted_endpoint_is_disabled'),
        ),
        migrations.AddIndex(
            model_name='webhookevent',
            index=models.Index(fields=['created_at'], name='webhook_event_by_time'),
        ),
        migrations.AddConstraint(
            model_name='webhookevent',
            constraint=models.UniqueConstraint(fields=('organization', 'event_type', 'key'), name='webhook_event_is_unique'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='webhookevent',
            trigger=pgtrigger.compiler.Trigger(name='webhook_event_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='91f83699b90a8000e6e0e5f29030b68c1b154e6b', operation='UPDATE', pgid='pgtrigger_webhook_event_stays_44d91', table='webhooks_event', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='webhookdelivery',
            index=models.Index(fields=['endpoint', '-created_at'], name='delivery_by_endpoint'),
        ),
        migrations.AddConstraint(
            model_name='webhookdelivery',
            constraint=models.UniqueConstraint(condition=models.Q(('is_repeat', False)), fields=('endpoint', 'event'), name='delivery_is_unique'),
        ),
        migrations.AddConstraint(
            model_name='webhookdelivery',
            constraint=models.CheckConstraint(condition=models.Q(('delivered_at__isnull', True), ('failed_at__isnull', True), _connector='OR'), name='delivery_ends_once'),
        ),
        migrations.AddConstraint(
            model_name='webhooksecret',
            constraint=models.UniqueConstraint(condition=models.Q(('expires_at__isnull', True)), fields=('endpoint',), name='endpoint_has_one_newest_secret'),
        ),
    ]

import django.utils.timezone
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='OutboxMessage',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=64)),
                ('key', models.CharField(max_length=200)),
                ('payload', models.JSONField()),
                ('organization_id', models.CharField(max_length=64, null=True)),
                ('lane', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('started_at', models.DateTimeField()),
                ('due_at', models.DateTimeField()),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('claimed_until', models.DateTimeField(null=True)),
                ('delivered_at', models.DateTimeField(null=True)),
                ('given_up_at', models.DateTimeField(null=True)),
                ('last_error', models.CharField(blank=True, max_length=200)),
            ],
            options={
                'db_table': 'outbox_message',
                'indexes': [models.Index(condition=models.Q(('delivered_at__isnull', True), ('given_up_at__isnull', True)), fields=['kind', 'lane', 'due_at', 'id'], name='message_by_lane'), models.Index(condition=models.Q(('delivered_at__isnull', True), ('given_up_at__isnull', True)), fields=['kind', 'due_at'], name='message_by_due'), models.Index(condition=models.Q(('delivered_at__isnull', True), ('given_up_at__isnull', True), models.Q(('last_error', ''), _negated=True)), fields=['lane'], name='message_in_trouble'), models.Index(condition=models.Q(('delivered_at__isnull', True), ('given_up_at__isnull', True), ('claimed_until__isnull', False)), fields=['claimed_until'], name='message_at_work'), models.Index(condition=models.Q(('delivered_at__isnull', True)), fields=['kind', 'started_at'], name='message_undelivered'), models.Index(condition=models.Q(('delivered_at__isnull', False)), fields=['delivered_at'], name='message_delivered'), models.Index(condition=models.Q(('given_up_at__isnull', False)), fields=['given_up_at'], name='message_given_up')],
                'constraints': [models.UniqueConstraint(fields=('kind', 'key'), name='message_is_unique'), models.CheckConstraint(condition=models.Q(('delivered_at__isnull', True), ('given_up_at__isnull', True), _connector='OR'), name='message_ends_once'), models.CheckConstraint(condition=models.Q(models.Q(('delivered_at__isnull', True), ('given_up_at__isnull', True)), ('claimed_until__isnull', True), _connector='OR'), name='message_that_ended_is_free'), models.CheckConstraint(condition=models.Q(('due_at__gte', models.F('started_at'))), name='message_is_due_after_its_start')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='outboxmessage',
            trigger=pgtrigger.compiler.Trigger(name='delivered_stays', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."delivered_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='fb7a1dafa60c7f389551ac24375129715639674b', operation='UPDATE', pgid='pgtrigger_delivered_stays_0c82b', table='outbox_message', when='BEFORE')),
        ),
    ]

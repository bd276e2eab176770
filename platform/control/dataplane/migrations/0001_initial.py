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
            name='EarlyClaimEnding',
            fields=[
                ('event_id', models.UUIDField(primary_key=True, serialize=False)),
                ('ended_at', models.DateTimeField(db_index=True)),
            ],
            options={
                'db_table': 'dataplane_early_claim_ending',
            },
        ),
        migrations.CreateModel(
            name='GatewayHeartbeat',
            fields=[
                ('gateway_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('seen_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'dataplane_gateway_heartbeat',
            },
        ),
        migrations.CreateModel(
            name='GatewayOwner',
            fields=[
                ('gateway_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=40)),
                ('named_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'dataplane_gateway_owner',
            },
        ),
        migrations.CreateModel(
            name='IdempotencyClaim',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key_digest', models.CharField(max_length=64)),
                ('request_digest', models.CharField(max_length=64)),
                ('event_id', models.UUIDField(unique=True)),
                ('gateway_id', models.CharField(max_length=64)),
                ('claimed_at', models.DateTimeField(db_index=True)),
                ('kept_at', models.DateTimeField(null=True)),
                ('is_completed', models.BooleanField(default=False)),
                ('sealed', models.BinaryField(null=True)),
                ('sealed_bytes', models.PositiveIntegerField(default=0)),
            ],
            options={
                'db_table': 'dataplane_idempotency_claim',
            },
        ),
        migrations.CreateModel(
            name='IdempotencyQuota',
            fields=[
                ('organization', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='organizations.organization')),
                ('claim_count', models.PositiveIntegerField(default=0)),
                ('kept_bytes', models.PositiveBigIntegerField(default=0)),
            ],
            options={
                'db_table': 'dataplane_idempotency_quota',
            },
        ),
        migrations.CreateModel(
            name='FailedRequest',
            fields=[
                ('request_id', models.UUIDField(primary_key=True, serialize=False)),
                ('project_id', models.CharField(max_length=64)),
                ('key_id', models.CharField(max_length=64)),
                ('variant_id', models.CharField(blank=True, max_length=64)),
                ('received_at', models.DateTimeField(db_index=True)),
                ('endpoint', models.CharField(max_length=200)),
                ('status', models.PositiveSmallIntegerField()),
                ('code', models.CharField(blank=True, max_length=200)),
                ('param', models.CharField(blank=True, max_length=200)),
                ('message', models.CharField(max_length=500)),
                ('client_request_id', models.CharField(blank=True, max_length=200)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='organizations.organization')),
            ],
            options={
                'db_table': 'dataplane_failed_request',
                'indexes': [models.Index(fields=['organization', 'request_id'], name='failed_of_organization')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='gatewayowner',
            trigger=pgtrigger.compiler.Trigger(name='named_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='534ac0229e32f0c0863cd73187184d4a9222fd2a', operation='UPDATE OR DELETE', pgid='pgtrigger_named_stays_5a100', table='dataplane_gateway_owner', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='gatewayowner',
            trigger=pgtrigger.compiler.Trigger(name='named_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='8cc7f263e2be3269c49a0dcf58ed903bc3d59937', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_named_all_stay_5aa7a', table='dataplane_gateway_owner', when='BEFORE')),
        ),
        migrations.AddField(
            model_name='idempotencyclaim',
            name='shelf',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='claims', to='dataplane.idempotencyquota'),
        ),
        migrations.AddConstraint(
            model_name='idempotencyclaim',
            constraint=models.UniqueConstraint(fields=('shelf', 'key_digest'), name='one_claim_of_a_key'),
        ),
        migrations.AddConstraint(
            model_name='idempotencyclaim',
            constraint=models.CheckConstraint(condition=models.Q(('sealed__isnull', True), ('kept_at__isnull', False), _connector='OR'), name='an_answer_is_kept_once_it_is_there'),
        ),
        migrations.AddConstraint(
            model_name='idempotencyclaim',
            constraint=models.CheckConstraint(condition=models.Q(('is_completed', False), ('kept_at__isnull', False), _connector='OR'), name='what_completed_was_kept'),
        ),
    ]

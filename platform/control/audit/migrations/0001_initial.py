import django.db.models.deletion
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
            name='AuditEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organization_id', models.CharField(blank=True, max_length=64)),
                ('actor_kind', models.CharField(max_length=16)),
                ('actor_id', models.CharField(blank=True, max_length=64)),
                ('actor_name', models.CharField(blank=True, max_length=254)),
                ('action', models.CharField(max_length=64)),
                ('target_kind', models.CharField(max_length=32)),
                ('target_id', models.CharField(max_length=64)),
                ('target_name', models.CharField(blank=True, max_length=300)),
                ('details', models.JSONField(blank=True, default=dict)),
                ('address', models.GenericIPAddressField(blank=True, null=True)),
                ('request_id', models.CharField(blank=True, max_length=64)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'audit_event',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='ChainLink',
            fields=[
                ('position', models.BigIntegerField(primary_key=True, serialize=False)),
                ('digest', models.BinaryField()),
            ],
            options={
                'db_table': 'audit_chain_link',
            },
        ),
        migrations.CreateModel(
            name='ChainVerification',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('made_at', models.DateTimeField()),
                ('position', models.BigIntegerField()),
                ('digest', models.BinaryField()),
                ('faults', models.JSONField(blank=True, default=list)),
            ],
            options={
                'db_table': 'audit_chain_verification',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='UnchainedEvent',
            fields=[
                ('deed', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, primary_key=True, serialize=False, to='audit.auditevent')),
            ],
            options={
                'db_table': 'audit_unchained_event',
            },
        ),
        migrations.AddIndex(
            model_name='auditevent',
            index=models.Index(fields=['organization_id', '-id'], name='audit_by_organization'),
        ),
        migrations.AddIndex(
            model_name='auditevent',
            index=models.Index(fields=['actor_id', '-id'], name='audit_by_actor'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='auditevent',
            trigger=pgtrigger.compiler.Trigger(name='deed_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='7b58ba7ff11dbce8499b4e49020cbf9da3a0693a', operation='UPDATE OR DELETE', pgid='pgtrigger_deed_stays_9eeaa', table='audit_event', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='auditevent',
            trigger=pgtrigger.compiler.Trigger(name='deed_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='ac72ec9f6d0380d0eace6ba2b4537769ab657800', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_deed_all_stay_e5615', table='audit_event', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='auditevent',
            trigger=pgtrigger.compiler.Trigger(name='deed_waits', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO audit_unchained_event (deed_id) VALUES (NEW.id); RETURN NULL;', hash='61b77eb4c6edf9d91feda521017cb04863fb500d', operation='INSERT', pgid='pgtrigger_deed_waits_a6501', table='audit_event', when='AFTER')),
        ),
        migrations.AddField(
            model_name='chainlink',
            name='deed',
            field=models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='link', to='audit.auditevent'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='chainverification',
            trigger=pgtrigger.compiler.Trigger(name='proof_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='644a1dd1f6692f7c5d087d9534eb8a4c3311ab43', operation='UPDATE OR DELETE', pgid='pgtrigger_proof_stays_7537f', table='audit_chain_verification', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='chainverification',
            trigger=pgtrigger.compiler.Trigger(name='proof_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='6ad8e32eaab00eb0cf620c9edc2961cbd8dcc94e', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_proof_all_stay_9a11f', table='audit_chain_verification', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='chainlink',
            trigger=pgtrigger.compiler.Trigger(name='link_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='935529b32f0b0a129add8137ef707f31f4d39cb4', operation='UPDATE OR DELETE', pgid='pgtrigger_link_stays_569f7', table='audit_chain_link', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='chainlink',
            trigger=pgtrigger.compiler.Trigger(name='link_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='7563e8d6047a9c9e7b0a46aff947bcb57439124f', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_link_all_stay_286d8', table='audit_chain_link', when='BEFORE')),
        ),
    ]

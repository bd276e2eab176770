import django.db.models.deletion
import django.utils.timezone
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name='Deed',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organization_id', models.CharField(blank=True, max_length=64)),
                ('actor_kind', models.CharField(max_length=16)),
                ('actor_id', models.CharField(blank=True, max_length=64)),
                ('actor_name', models.CharField(blank=True, max_length=254)),
                ('action', models.CharField(max_length=64)),
                ('target_kind', models.CharField(max_length=32)),
                ('target_id', models.CharField(max_length=64)),
                ('details', models.JSONField(blank=True, default=dict)),
                ('address', models.GenericIPAddressField(blank=True, null=True)),
                ('request_id', models.CharField(blank=True, max_length=64)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'verbose_name_plural': 'deeds',
                'db_table': 'audit_entry',
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['organization_id', '-id'], name='audit_by_organization'), models.Index(fields=['actor_id', '-id'], name='audit_by_actor')],
            },
        ),
        migrations.CreateModel(
            name='Waiting',
            fields=[
                ('deed', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, primary_key=True, serialize=False, to='audit.deed')),
            ],
            options={
                'db_table': 'audit_waiting',
            },
        ),
        migrations.CreateModel(
            name='Link',
            fields=[
                ('position', models.BigIntegerField(primary_key=True, serialize=False)),
                ('deed', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='link', to='audit.deed')),
                ('digest', models.BinaryField()),
            ],
            options={
                'db_table': 'audit_link',
            },
        ),
        migrations.CreateModel(
            name='Proof',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('made_at', models.DateTimeField()),
                ('position', models.BigIntegerField()),
                ('digest', models.BinaryField()),
                ('faults', models.JSONField(blank=True, default=list)),
            ],
            options={
                'db_table': 'audit_proof',
                'ordering': ['-id'],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deed',
            trigger=pgtrigger.compiler.Trigger(name='deed_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='b577c5577b1c49017f5dac798b4f333483dfccc5', operation='UPDATE OR DELETE', pgid='pgtrigger_deed_stays_421c3', table='audit_entry', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deed',
            trigger=pgtrigger.compiler.Trigger(name='deed_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='057f9ced5cc3c267d775119e8159928760e2b37d', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_deed_all_stay_8cb37', table='audit_entry', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deed',
            trigger=pgtrigger.compiler.Trigger(name='deed_waits', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO audit_waiting (deed_id) VALUES (NEW.id); RETURN NULL;', hash='c4ccd59d37724f376febfcda762d0809d4b386bd', operation='INSERT', pgid='pgtrigger_deed_waits_1b55d', table='audit_entry', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='link',
            trigger=pgtrigger.compiler.Trigger(name='link_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='3a5b2f3450a6a6f07e0b2224b72e52b3b4a56f96', operation='UPDATE OR DELETE', pgid='pgtrigger_link_stays_d1628', table='audit_link', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='link',
            trigger=pgtrigger.compiler.Trigger(name='link_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='972e2f31b9ef4734e193aec2cc389050ead99246', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_link_all_stay_9c19d', table='audit_link', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='proof',
            trigger=pgtrigger.compiler.Trigger(name='proof_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='89fe30295feab4ea557610c1626ecc88b1329edd', operation='UPDATE OR DELETE', pgid='pgtrigger_proof_stays_a4648', table='audit_proof', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='proof',
            trigger=pgtrigger.compiler.Trigger(name='proof_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='555c799812e00d379cb00591f0c50950a2a02a58', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_proof_all_stay_8b454', table='audit_proof', when='BEFORE')),
        ),
    ]

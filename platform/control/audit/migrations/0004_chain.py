"""Deeds name people by reference and have a chain.

What older deeds say of people who are users becomes their ids, which are shown by name; what they say of
others stays as it was written. The trigger that keeps deeds as they are is off for that alone. All then
wait for their place in the chain.
"""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


REFER = """
ALTER TABLE audit_entry DISABLE TRIGGER USER;

UPDATE audit_entry AS deed SET actor_name = '' FROM tenants_user AS person
WHERE deed.actor_kind = 'user' AND deed.actor_id = person.id;

UPDATE audit_entry AS deed SET details = (
    SELECT jsonb_object_agg(key, CASE
        WHEN person.id IS NOT NULL THEN to_jsonb('⟦' || person.id || '⟧')
        WHEN key = 'email' AND invited.id IS NOT NULL THEN to_jsonb('⟦' || invited.id || '⟧')
        ELSE value END)
    FROM jsonb_each(deed.details)
    LEFT JOIN tenants_user AS person
        ON jsonb_typeof(value) = 'string' AND lower(value #>> '{}') = person.email
    LEFT JOIN (
        SELECT id FROM tenants_invitation UNION ALL SELECT id FROM tenants_operator_invitation
    ) AS invited ON invited.id = deed.target_id
) WHERE details::text LIKE '%@%';

ALTER TABLE audit_entry ENABLE TRIGGER USER;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('audit', '0003_deeds'),
        ('tenants', '0004_operator_roles'),
    ]

    operations = [
        migrations.RunSQL(REFER, migrations.RunSQL.noop),
        migrations.CreateModel(
            name='Link',
            fields=[
                ('position', models.BigIntegerField(primary_key=True, serialize=False)),
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
        migrations.CreateModel(
            name='Waiting',
            fields=[
                ('deed', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, primary_key=True, serialize=False, to='audit.deed')),
            ],
            options={
                'db_table': 'audit_waiting',
            },
        ),
        migrations.AddField(
            model_name='deed',
            name='address',
            field=models.GenericIPAddressField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='deed',
            name='request_id',
            field=models.CharField(blank=True, max_length=64),
        ),
        migrations.AlterField(
            model_name='deed',
            name='actor_name',
            field=models.CharField(blank=True, max_length=254),
        ),
        migrations.AddIndex(
            model_name='deed',
            index=models.Index(fields=['actor_id', '-id'], name='audit_by_actor'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deed',
            trigger=pgtrigger.compiler.Trigger(name='deed_waits', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO audit_waiting (deed_id) VALUES (NEW.id); RETURN NULL;', hash='c4ccd59d37724f376febfcda762d0809d4b386bd', operation='INSERT', pgid='pgtrigger_deed_waits_1b55d', table='audit_entry', when='AFTER')),
        ),
        migrations.AddField(
            model_name='link',
            name='deed',
            field=models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='link', to='audit.deed'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='proof',
            trigger=pgtrigger.compiler.Trigger(name='proof_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='89fe30295feab4ea557610c1626ecc88b1329edd', operation='UPDATE OR DELETE', pgid='pgtrigger_proof_stays_a4648', table='audit_proof', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='link',
            trigger=pgtrigger.compiler.Trigger(name='link_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='3a5b2f3450a6a6f07e0b2224b72e52b3b4a56f96', operation='UPDATE OR DELETE', pgid='pgtrigger_link_stays_d1628', table='audit_link', when='BEFORE')),
        ),
        migrations.RunSQL(
            "INSERT INTO audit_waiting (deed_id) SELECT id FROM audit_entry",
            migrations.RunSQL.noop,
        ),
    ]

"""What the audit holds is called deeds, since entries are the ledger's. The table stays as it is; that
it is written once is held by a trigger of django-pgtrigger's, as of all other facts."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations

DROP = """
DROP TRIGGER audit_entry_is_immutable ON audit_entry;
DROP FUNCTION audit_refuse_change();
"""
RESTORE = """
CREATE FUNCTION audit_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit entry % is written once', OLD.id
        USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TRIGGER audit_entry_is_immutable BEFORE UPDATE OR DELETE ON audit_entry
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0002_entries_are_immutable")]
    operations = [
        migrations.RenameModel("Entry", "Deed"),
        migrations.AlterModelOptions(
            "Deed", {"ordering": ["-id"], "verbose_name_plural": "deeds"}
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deed',
            trigger=pgtrigger.compiler.Trigger(name='deed_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='b577c5577b1c49017f5dac798b4f333483dfccc5', operation='UPDATE OR DELETE', pgid='pgtrigger_deed_stays_421c3', table='audit_entry', when='BEFORE')),
        ),
        migrations.RunSQL(DROP, RESTORE),
    ]

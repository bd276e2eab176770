"""A usage event is a fact: the database refuses to change or delete one."""

from django.db import migrations

FORWARDS = """
CREATE FUNCTION metering_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: usage events are facts', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER metering_usage_event_is_immutable BEFORE UPDATE OR DELETE ON metering_usage_event
    FOR EACH ROW EXECUTE FUNCTION metering_refuse_change();
"""

BACKWARDS = """
DROP TRIGGER metering_usage_event_is_immutable ON metering_usage_event;
DROP FUNCTION metering_refuse_change();
"""


class Migration(migrations.Migration):
    dependencies = [("metering", "0001_initial")]

    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]

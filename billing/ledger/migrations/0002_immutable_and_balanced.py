"""The database keeps the books' promises: nothing is changed, every transaction sums to zero."""

from django.db import migrations

FORWARDS = """
CREATE FUNCTION ledger_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: the books are never changed, only added to',
        TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER ledger_entry_is_immutable BEFORE UPDATE OR DELETE ON ledger_entry
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_change();
CREATE TRIGGER ledger_transaction_is_immutable BEFORE UPDATE OR DELETE ON ledger_transaction
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_change();
CREATE TRIGGER ledger_account_stays BEFORE DELETE ON ledger_account
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_change();

CREATE FUNCTION ledger_refuse_unbalanced() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    checked text := CASE TG_TABLE_NAME
        WHEN 'ledger_entry' THEN to_jsonb(NEW) ->> 'transaction_id'
        ELSE to_jsonb(NEW) ->> 'id' END;
    entry_count bigint;
    total numeric;
BEGIN
    SELECT count(*), coalesce(sum(nanos), 0) INTO entry_count, total
        FROM ledger_entry WHERE transaction_id = checked;
    IF entry_count < 2 OR total <> 0 THEN
        RAISE EXCEPTION 'ledger transaction % has % entries that sum to % nanos, not to zero',
            checked, entry_count, total USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER ledger_entry_is_balanced AFTER INSERT ON ledger_entry
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_refuse_unbalanced();
CREATE CONSTRAINT TRIGGER ledger_transaction_is_balanced AFTER INSERT ON ledger_transaction
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_refuse_unbalanced();
"""

BACKWARDS = """
DROP TRIGGER ledger_transaction_is_balanced ON ledger_transaction;
DROP TRIGGER ledger_entry_is_balanced ON ledger_entry;
DROP FUNCTION ledger_refuse_unbalanced();
DROP TRIGGER ledger_account_stays ON ledger_account;
DROP TRIGGER ledger_transaction_is_immutable ON ledger_transaction;
DROP TRIGGER ledger_entry_is_immutable ON ledger_entry;
DROP FUNCTION ledger_refuse_change();
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_initial")]

    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]

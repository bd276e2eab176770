-- What the database itself holds of the books. Loaded by migrations/0001_initial.

-- An entry is written by the database transaction that writes its ledger transaction, or never.
CREATE FUNCTION ledger_refuse_joining() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM ledger_transaction
        WHERE id = NEW.transaction_id AND created_xid = pg_current_xact_id()
    ) THEN
        RAISE EXCEPTION 'ledger transaction % is sealed: no entry joins it', NEW.transaction_id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

-- Nor does a transaction say for itself who wrote it.
CREATE FUNCTION ledger_stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.created_xid := pg_current_xact_id();
    RETURN NEW;
END $$;

CREATE TRIGGER ledger_transaction_is_stamped BEFORE INSERT ON ledger_transaction
    FOR EACH ROW EXECUTE FUNCTION ledger_stamp();

CREATE TRIGGER ledger_entry_joins_none BEFORE INSERT ON ledger_entry
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_joining();

-- A balance moves by its entries and by nothing else. The writer holds the organization's budget,
-- so two statements never meet in one account.
CREATE FUNCTION ledger_add_to_balances() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE ledger_account AS account SET balance_nanos = account.balance_nanos + moved.nanos
    FROM (SELECT account_id, sum(nanos)::bigint AS nanos FROM added GROUP BY account_id) AS moved
    WHERE account.id = moved.account_id;
    RETURN NULL;
END $$;

CREATE TRIGGER ledger_entry_moves_balances AFTER INSERT ON ledger_entry
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_add_to_balances();

CREATE FUNCTION ledger_open_at_zero() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.balance_nanos := 0;
    RETURN NEW;
END $$;

CREATE TRIGGER ledger_account_opens_at_zero BEFORE INSERT ON ledger_account
    FOR EACH ROW EXECUTE FUNCTION ledger_open_at_zero();

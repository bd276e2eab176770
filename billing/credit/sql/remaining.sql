-- Whether anything is left of a grant follows its account. Loaded by migrations/0003_remaining.

-- An account that reaches zero, or leaves it, marks its grant. Whoever posts has locked the balance.
CREATE FUNCTION credit_mark_remaining() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE credit_grant SET has_remaining = NEW.balance_nanos <> 0 WHERE account_id = NEW.id;
    RETURN NULL;
END $$;

CREATE TRIGGER credit_account_marks_grant AFTER UPDATE OF balance_nanos ON ledger_account
    FOR EACH ROW WHEN (
        (OLD.balance_nanos = 0) <> (NEW.balance_nanos = 0)
        AND NEW.kind IN ('customer_balance', 'promotional_credit')
    ) EXECUTE FUNCTION credit_mark_remaining();

UPDATE credit_grant AS given SET has_remaining = false FROM ledger_account AS account
WHERE account.id = given.account_id AND account.balance_nanos = 0;

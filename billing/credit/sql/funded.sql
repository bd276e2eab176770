-- What funds a balance follows the ledger. Loaded by migrations/0002_funded_by_the_ledger.

-- A ledger transaction adds its funded_nanos to its organization's balance, which its writer has
-- locked, and recalls what is leased beyond what is left.
CREATE FUNCTION credit_add_funds() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    funded record;
BEGIN
    FOR funded IN
        SELECT added.organization_id, sum(added.funded_nanos)::bigint AS nanos,
            max(added.posted_at) AS at_now, (
                SELECT id FROM credit_budget AS budget
                WHERE budget.organization_id = added.organization_id AND budget.kind = 'balance'
            ) AS budget_row
        FROM added WHERE added.funded_nanos <> 0 GROUP BY added.organization_id
    LOOP
        IF funded.budget_row IS NULL THEN
            RAISE EXCEPTION 'organization % has no balance to fund', funded.organization_id
                USING ERRCODE = 'foreign_key_violation';
        END IF;
        PERFORM credit_fund(funded.budget_row, funded.nanos, funded.at_now);
    END LOOP;
    RETURN NULL;
END $$;

CREATE TRIGGER credit_transaction_adds_funds AFTER INSERT ON ledger_transaction
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION credit_add_funds();

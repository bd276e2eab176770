-- The limits of budgets. Loaded by migrations/0003_credit_limit.

-- The limit of a balance: what funds it, and what may be owed beyond that, which collection suspends
-- while a payment is overdue.
CREATE FUNCTION credit_balance_limit(
    funded_nanos bigint, credit_limit_nanos bigint, is_credit_limit_suspended boolean
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT funded_nanos + CASE WHEN is_credit_limit_suspended THEN 0 ELSE credit_limit_nanos END
$$;

-- Make the rows of budgets that are missing, with the limit of control's row, or of its table of
-- limits by the week and the day; what control does not know gets none. `posted` is what was used
-- before, of which months and balances know by themselves. Who changes a limit opens this period's
-- row and the next one's too, so a row made meanwhile with the old limit is waited for and corrected
-- (credit_set_limits).
CREATE OR REPLACE FUNCTION credit_open_budgets(
    ids text[], kinds text[], periods text[], limited_ids text[], starts timestamptz[],
    ends timestamptz[], posted bigint[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO credit_budget (budget_id, kind, period, organization_id, starts_at, ends_at,
        limit_nanos, credit_limit_nanos, posted_nanos, pending_nanos, funded_nanos)
    SELECT wanted.id, wanted.kind, wanted.period,
        coalesce(organization.id, project.organization_id, key.organization_id),
        wanted.starts_at, wanted.ends_at,
        CASE
            WHEN wanted.kind = 'balance' THEN credit_limit.nanos
            WHEN wanted.period <> 'month' THEN CASE WHEN fine.is_hard THEN fine.limit_nanos END
            WHEN wanted.kind = 'organization' THEN organization.spend_limit_nanos
            WHEN wanted.kind = 'project' THEN project.spend_limit_nanos
            ELSE key.spend_limit_nanos
        END, credit_limit.nanos, wanted.posted, 0, 0
    FROM unnest(ids, kinds, periods, limited_ids, starts, ends, posted)
        AS wanted (id, kind, period, limited_id, starts_at, ends_at, posted)
    LEFT JOIN organizations_organization organization
        ON wanted.kind IN ('balance', 'organization') AND organization.id = wanted.limited_id
    LEFT JOIN organizations_project project
        ON wanted.kind = 'project' AND project.id = wanted.limited_id
    LEFT JOIN api_keys_api_key key ON wanted.kind = 'key' AND key.id = wanted.limited_id
    LEFT JOIN limits_spending_limit fine ON fine.budget_id = wanted.id
    CROSS JOIN LATERAL (
        SELECT CASE WHEN wanted.kind = 'balance' AND organization.billing_mode = 'postpaid'
            THEN organization.credit_limit_nanos ELSE 0 END AS nanos
    ) AS credit_limit
    WHERE coalesce(organization.id, project.id, key.id) IS NOT NULL
    ORDER BY wanted.id, wanted.starts_at
    ON CONFLICT (budget_id, starts_at) DO NOTHING;
END $$;

-- Set the limits of budgets (NULL: no limit), of a balance the credit limit, which is suspended or
-- not as it was. Answers how many leases were recalled.
CREATE OR REPLACE FUNCTION credit_set_limits(
    budget_rows bigint[], limits bigint[], at_now timestamptz
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM credit_lock(budget_rows);
    UPDATE credit_budget budget SET
        credit_limit_nanos = CASE budget.kind WHEN 'balance' THEN new.nanos ELSE 0 END,
        limit_nanos = CASE budget.kind WHEN 'balance' THEN credit_balance_limit(
            budget.funded_nanos, new.nanos, budget.is_credit_limit_suspended
        ) ELSE new.nanos END
    FROM unnest(budget_rows, limits) AS new (id, nanos) WHERE budget.id = new.id;
    RETURN credit_recall_overdrawn(budget_rows, at_now);
END $$;

-- Suspend a balance's credit limit, or restore it. What is leased beyond it is recalled.
CREATE FUNCTION credit_suspend_credit_limit(
    budget_row bigint, is_suspended boolean, at_now timestamptz
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM credit_lock(ARRAY[budget_row]);
    UPDATE credit_budget SET is_credit_limit_suspended = is_suspended,
        limit_nanos = credit_balance_limit(funded_nanos, credit_limit_nanos, is_suspended)
    WHERE id = budget_row AND kind = 'balance';
    PERFORM credit_recall_overdrawn(ARRAY[budget_row], at_now);
END $$;

-- Postpaid balances had no limit before.
UPDATE credit_budget AS budget SET credit_limit_nanos = organization.credit_limit_nanos,
    limit_nanos = funded_nanos + organization.credit_limit_nanos
FROM organizations_organization AS organization
WHERE organization.id = budget.organization_id AND kind = 'balance'
    AND organization.billing_mode = 'postpaid';

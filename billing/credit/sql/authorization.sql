-- May this be spent? With limits.sql the only statements that move a budget's figures. Loaded by
-- migrations/0001_initial.
--
-- Every function locks budgets by id, those by the week and the day last, and then, in statements of their own that see what was
-- committed before the locks were had, computes from what it locked (READ COMMITTED). A lease is
-- only ever changed under the lock of its budget, so it needs none of its own.

-- What a lease still holds.
CREATE FUNCTION credit_held(keep_nanos bigint, settled_nanos bigint, closed_at timestamptz)
    RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN closed_at IS NULL THEN greatest(keep_nanos - settled_nanos, 0) ELSE 0 END
$$;

-- Lock budgets until the transaction ends, in the one order.
CREATE FUNCTION credit_lock(budget_rows bigint[]) RETURNS void LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM FROM credit_budget WHERE id = ANY(budget_rows)
    ORDER BY period IN ('week', 'day'), id FOR NO KEY UPDATE;
END $$;

-- What may still be granted, below zero after late facts. No limit (NULL) is one of four billion
-- dollars, so that no wish, however absurd, takes a sum out of 64 bits.
CREATE FUNCTION credit_available(limit_nanos bigint, posted_nanos bigint, pending_nanos bigint)
    RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(limit_nanos, 4000000000000000000) - posted_nanos - pending_nanos
$$;

-- What to grant: up to the wish, which is ten minutes' spend, while an hour's is left; a minute's
-- while ten minutes' are; then the need alone; nothing (NULL) where even that is not there.
CREATE FUNCTION credit_grant_size(need bigint, want bigint, available bigint)
    RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN available <= 0 OR available < need THEN NULL
        WHEN available / 6 >= want THEN greatest(need, want)
        WHEN available >= want THEN greatest(need, want / 10)
        ELSE need
    END
$$;

-- Answer a gateway's asks, the first of each budget only; the others, and those whose budget is
-- busy, are not in the answer: they are deferred. Asked again, a lease is answered as it was granted
-- (with nothing where it is over by now); an ask id that names another gateway's lease, or one of
-- another budget, is not answered. Refused, what lies idle with other gateways is recalled.
CREATE FUNCTION credit_grant_leases(
    asker text, era text, at_now timestamptz, ask_ids text[], budget_rows bigint[], needs bigint[],
    wants bigint[], froms timestamptz[], untils timestamptz[]
) RETURNS TABLE (ask_id text, lease_id bigint, granted_nanos bigint, period timestamptz,
    admits_from timestamptz, admits_until timestamptz, available_nanos bigint, is_recalled boolean,
    limit_nanos bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    locked bigint[];
BEGIN
    SELECT coalesce(array_agg(id), '{}') INTO locked FROM (
        SELECT id FROM credit_budget WHERE id = ANY(budget_rows)
        ORDER BY period IN ('week', 'day'), id FOR NO KEY UPDATE SKIP LOCKED
    ) AS free;
    RETURN QUERY
    WITH ask AS (
        SELECT asked.*, made.id AS made_id, made.gateway_id AS made_for,
            row_number() OVER (PARTITION BY asked.budget_row, made.id IS NULL ORDER BY asked.ask_id)
                AS place
        FROM unnest(ask_ids, budget_rows, needs, wants, froms, untils)
            AS asked (ask_id, budget_row, need, want, admits_from, admits_until)
        JOIN unnest(locked) AS free (id) ON free.id = asked.budget_row
        LEFT JOIN credit_lease made ON made.ask_id = asked.ask_id
    ), sized AS (
        SELECT ask.*, budget.organization_id, budget.starts_at, budget.limit_nanos,
            left_over.nanos AS available,
            credit_grant_size(ask.need, ask.want, left_over.nanos) AS nanos
        FROM ask JOIN credit_budget budget ON budget.id = ask.budget_row
        CROSS JOIN LATERAL credit_available(budget.limit_nanos, budget.posted_nanos,
            budget.pending_nanos) AS left_over (nanos)
        WHERE ask.made_id IS NULL AND ask.place = 1
    ), made AS (
        INSERT INTO credit_lease (ask_id, budget_id, organization_id, gateway_id, granted_nanos,
            keep_nanos, settled_nanos, granted_at, admits_from, admits_until, lineage)
        SELECT sized.ask_id, sized.budget_row, sized.organization_id, asker, sized.nanos,
            sized.nanos, 0, at_now, sized.admits_from, sized.admits_until, era
        FROM sized WHERE sized.nanos <= sized.available
        ON CONFLICT (ask_id) DO NOTHING
        RETURNING credit_lease.*
    ), held AS (
        UPDATE credit_budget budget SET pending_nanos = budget.pending_nanos + made.granted_nanos
        FROM made WHERE budget.id = made.budget_id
    ), recalled AS (
        UPDATE credit_lease lease SET recalled_at = coalesce(lease.recalled_at, at_now)
        WHERE lease.budget_id = ANY(ARRAY(SELECT budget_row FROM sized WHERE nanos IS NULL))
            AND lease.closed_at IS NULL AND lease.stopped_at IS NULL
            AND lease.gateway_id <> asker AND lease.admits_until > at_now
            AND lease.keep_nanos > lease.settled_nanos
        RETURNING lease.budget_id
    )
    SELECT made.ask_id::text, made.id, made.granted_nanos, sized.starts_at, made.admits_from,
        made.admits_until, NULL::bigint, false, NULL::bigint
    FROM made JOIN sized ON sized.budget_row = made.budget_id
    UNION ALL
    SELECT lease.ask_id::text, lease.id,
        CASE WHEN lease.closed_at IS NULL AND lease.stopped_at IS NULL AND lease.lineage = era
            THEN lease.granted_nanos ELSE 0 END,
        budget.starts_at, lease.admits_from, lease.admits_until, NULL::bigint, false, NULL::bigint
    FROM ask JOIN credit_lease lease ON lease.id = ask.made_id
    JOIN credit_budget budget ON budget.id = lease.budget_id
    JOIN credit_budget asked ON asked.id = ask.budget_row
    WHERE ask.made_for = asker AND budget.budget_id = asked.budget_id
    UNION ALL
    SELECT sized.ask_id, NULL, NULL, NULL, NULL, NULL, greatest(sized.available, 0),
        sized.budget_row IN (SELECT budget_id FROM recalled), sized.limit_nanos
    FROM sized WHERE sized.nanos IS NULL;
END $$;

-- Take back what a gateway returns: it never settles more than `keeps` in all. Leases of busy
-- budgets are not in the answer and come again; leases that are not its own, or closed, are. Each
-- table is entered by ids and joined by hash, by one plan for arrays of any length: with statistics
-- that are minutes old, the planner would expect one open lease and pass through ten thousand
-- returns for every one there is, and planning for ten thousand ids takes as long as looking them up.
CREATE FUNCTION credit_take_back(
    giver text, at_now timestamptz, lease_ids bigint[], keeps bigint[], closes boolean[]
) RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET enable_nestloop = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    own bigint[];
    budgets_of_own bigint[];
    locked bigint[];
BEGIN
    SELECT array_agg(id), array_agg(budget_id) INTO own, budgets_of_own FROM credit_lease
    WHERE id = ANY(lease_ids) AND gateway_id = giver AND closed_at IS NULL;
    SELECT coalesce(array_agg(id), '{}') INTO locked FROM (
        SELECT id FROM credit_budget WHERE id = ANY(budgets_of_own)
        ORDER BY period IN ('week', 'day'), id FOR NO KEY UPDATE SKIP LOCKED
    ) AS free;
    WITH given AS (
        SELECT lease.id, lease.budget_id, given.closes,
            credit_held(lease.keep_nanos, lease.settled_nanos, lease.closed_at) AS held_nanos,
            least(lease.keep_nanos,
                greatest(given.keep_nanos, least(lease.settled_nanos, lease.granted_nanos))
            ) AS keep_nanos, lease.settled_nanos
        FROM (
            SELECT id, min(keep_nanos) AS keep_nanos, bool_or(closes) AS closes
            FROM unnest(lease_ids, keeps, closes) AS one (id, keep_nanos, closes) GROUP BY id
        ) AS given
        JOIN credit_lease lease USING (id)
        JOIN unnest(locked) AS free (id) ON free.id = lease.budget_id
        WHERE lease.id = ANY(lease_ids) AND lease.gateway_id = giver AND lease.closed_at IS NULL
    ), changed AS (
        UPDATE credit_lease lease SET keep_nanos = given.keep_nanos, recalled_at = NULL,
            stopped_at = coalesce(lease.stopped_at, at_now),
            closed_at = CASE WHEN given.closes THEN at_now END
        FROM given WHERE lease.id = given.id AND lease.id = ANY(lease_ids)
    )
    UPDATE credit_budget budget SET pending_nanos = budget.pending_nanos - freed.nanos
    FROM (
        SELECT budget_id, sum(held_nanos - CASE WHEN closes THEN 0
            ELSE greatest(keep_nanos - settled_nanos, 0) END)::bigint AS nanos
        FROM given GROUP BY budget_id
    ) AS freed
    WHERE budget.id = freed.budget_id AND budget.id = ANY(locked) AND freed.nanos <> 0;
    RETURN QUERY
    SELECT id FROM unnest(lease_ids) AS given (id) WHERE id NOT IN (
        SELECT id FROM unnest(own, budgets_of_own) AS held (id, budget_id)
        WHERE budget_id NOT IN (SELECT unnest(locked))
    );
END $$;

-- Add charges to budgets, and to the leases they were held on: what a lease no longer holds is no
-- longer pending. Usage is a fact, so this checks no limit; leases that took more than they were
-- granted, or were closed, are answered. A budget that is not there is an error, and so is a lease
-- of none of them: no charge is lost in silence, and no lease settles without its budget's lock.
-- Each table is entered by ids and joined by hash, as above, by one plan for arrays of any length: it
-- expects ten rows, and left to itself would join sixteen thousand charges with as many leases one by
-- one (10 s a batch, from a session's sixth call on). Planning for each array costs a quarter more.
CREATE FUNCTION credit_charge(
    budget_rows bigint[], charges bigint[], lease_ids bigint[], settles bigint[],
    OUT overrun bigint[], OUT closed bigint[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET enable_nestloop = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    found bigint;
    strays bigint;
BEGIN
    PERFORM FROM credit_budget WHERE id = ANY(budget_rows)
    ORDER BY period IN ('week', 'day'), id FOR NO KEY UPDATE;
    GET DIAGNOSTICS found = ROW_COUNT;
    IF found <> cardinality(budget_rows) THEN
        RAISE EXCEPTION 'charges name % budgets of which % exist', cardinality(budget_rows), found
            USING ERRCODE = 'foreign_key_violation';
    END IF;
    WITH settled AS (
        UPDATE credit_lease lease SET settled_nanos = lease.settled_nanos + part.nanos
        FROM unnest(lease_ids, settles) AS part (id, nanos)
        WHERE lease.id = part.id AND lease.id = ANY(lease_ids)
        RETURNING lease.id, lease.budget_id, lease.settled_nanos > lease.granted_nanos AS is_over,
            lease.closed_at IS NOT NULL AS is_closed,
            credit_held(lease.keep_nanos, lease.settled_nanos - part.nanos, lease.closed_at)
            - credit_held(lease.keep_nanos, lease.settled_nanos, lease.closed_at) AS freed_nanos
    ), posted AS (
        UPDATE credit_budget budget SET
            posted_nanos = budget.posted_nanos + coalesce(charged.nanos, 0),
            pending_nanos = budget.pending_nanos - coalesce(freed.nanos, 0)
        FROM unnest(budget_rows, charges) AS charged (id, nanos)
        LEFT JOIN (
            SELECT budget_id, sum(freed_nanos)::bigint AS nanos FROM settled GROUP BY budget_id
        ) AS freed ON freed.budget_id = charged.id
        WHERE budget.id = charged.id AND budget.id = ANY(budget_rows)
    )
    SELECT coalesce(array_agg(id) FILTER (WHERE is_over), '{}'),
        coalesce(array_agg(id) FILTER (WHERE is_closed), '{}'),
        count(*) FILTER (WHERE budget_id NOT IN (SELECT unnest(budget_rows)))
    INTO overrun, closed, strays FROM settled;
    IF strays > 0 THEN
        RAISE EXCEPTION 'charges settle % leases of budgets that they do not charge', strays
            USING ERRCODE = 'foreign_key_violation';
    END IF;
END $$;

-- Recall every lease of budgets, locked, that have less left than is held. Answers how many.
CREATE FUNCTION credit_recall_overdrawn(budget_rows bigint[], at_now timestamptz) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    recalled bigint;
BEGIN
    UPDATE credit_lease lease SET recalled_at = coalesce(lease.recalled_at, at_now)
    FROM credit_budget budget
    WHERE budget.id = ANY(budget_rows) AND lease.budget_id = budget.id
        AND budget.posted_nanos + budget.pending_nanos > budget.limit_nanos
        AND lease.closed_at IS NULL AND lease.stopped_at IS NULL;
    GET DIAGNOSTICS recalled = ROW_COUNT;
    RETURN recalled;
END $$;

-- Recall every lease of a budget, which is locked: what lies idle with gateways comes back.
CREATE FUNCTION credit_recall(budget_row bigint, at_now timestamptz) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE credit_lease SET recalled_at = coalesce(recalled_at, at_now)
    WHERE budget_id = budget_row AND closed_at IS NULL AND stopped_at IS NULL;
END $$;

-- Add to what funds a balance (payments and grants above zero, expiry and refunds below).
CREATE FUNCTION credit_fund(budget_row bigint, nanos bigint, at_now timestamptz) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE credit_budget SET funded_nanos = funded_nanos + nanos, limit_nanos = limit_nanos + nanos
    WHERE id = budget_row AND kind = 'balance';
    PERFORM credit_recall_overdrawn(ARRAY[budget_row], at_now);
END $$;

-- Give back what a lease holds whose gateway is gone. Answers what it held, NULL where it is closed.
CREATE FUNCTION credit_void_lease(voided bigint, at_now timestamptz) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    held bigint;
    of_budget bigint;
BEGIN
    SELECT budget_id INTO of_budget FROM credit_lease WHERE id = voided;
    PERFORM FROM credit_budget WHERE id = of_budget FOR NO KEY UPDATE;
    SELECT credit_held(keep_nanos, settled_nanos, closed_at) INTO held
    FROM credit_lease WHERE id = voided AND closed_at IS NULL;
    IF held IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE credit_lease SET closed_at = at_now, voided_at = at_now WHERE id = voided;
    UPDATE credit_budget SET pending_nanos = pending_nanos - held WHERE id = of_budget;
    RETURN held;
END $$;

-- Note that an operator looked into a lease that took more than it was granted.
CREATE FUNCTION credit_see_overrun(seen bigint, at_now timestamptz) RETURNS void LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM FROM credit_budget WHERE id = (SELECT budget_id FROM credit_lease WHERE id = seen)
    FOR NO KEY UPDATE;
    UPDATE credit_lease SET overrun_seen_at = at_now WHERE id = seen;
END $$;

-- Forget leases that were closed long ago, the oldest first; one that took more than it was granted
-- stays until a person has looked into it. Answers how many.
CREATE FUNCTION credit_forget_leases(closed_before timestamptz, most integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone bigint;
BEGIN
    DELETE FROM credit_lease WHERE id IN (
        SELECT id FROM credit_lease WHERE closed_at < closed_before
            AND (settled_nanos <= granted_nanos OR overrun_seen_at IS NOT NULL)
        ORDER BY id LIMIT most
    );
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END $$;

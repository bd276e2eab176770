-- Corrections as they count: every correction counts in (sign 1), and the lost event that it replaces
-- counts out (sign -1), on the correction's day and with its transaction. Loaded by migrations/0001_initial.
CREATE VIEW following_correction AS
    SELECT 1 AS sign, event_id, organization_id, ingested_xid, accounted_on, caller_id, supply_id,
        input_tokens, cached_input_tokens, output_tokens, reasoning_tokens,
        input_nanos, cached_input_nanos, output_nanos, is_waived, outcome, ttft_seconds,
        rating, fault
    FROM metering_usage_correction
UNION ALL
    SELECT -1, lost.event_id, lost.organization_id, correction.ingested_xid,
        correction.accounted_on, lost.caller_id, lost.supply_id, lost.input_tokens,
        lost.cached_input_tokens, lost.output_tokens, lost.reasoning_tokens, lost.input_nanos,
        lost.cached_input_nanos, lost.output_nanos, lost.is_waived, lost.outcome,
        lost.ttft_seconds, lost.rating, lost.fault
    FROM metering_usage_correction AS correction
    CROSS JOIN LATERAL (
        SELECT * FROM metering_usage_event WHERE event_id = correction.event_id OFFSET 0
    ) AS lost;

-- Usage as it counts: every event (sign 1), and every correction with what it replaces.
CREATE VIEW following_usage AS
    SELECT 1 AS sign, event_id, organization_id, ingested_xid, accounted_on, caller_id, supply_id,
        input_tokens, cached_input_tokens, output_tokens, reasoning_tokens,
        input_nanos, cached_input_nanos, output_nanos, is_waived, outcome, ttft_seconds,
        rating, fault
    FROM metering_usage_event
UNION ALL
    SELECT * FROM following_correction;

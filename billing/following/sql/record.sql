-- Usage that stands alone: events and corrections with names in place of numbers. Seals are digests
-- of these rows, and archives hold them. Loaded by migrations/0001_initial.
CREATE VIEW following_record AS
SELECT usage.kind, usage.event_id, usage.organization_id, caller.project_id, caller.key_id,
    supply.model_id, supply.variant_id, supply.price_id, supply.endpoint, supply.tier,
    origin.gateway_id, origin.deployment_id, origin.replica_id, usage.input_tokens,
    usage.cached_input_tokens, usage.output_tokens, usage.reasoning_tokens, usage.input_nanos,
    usage.cached_input_nanos, usage.output_nanos, usage.queue_seconds, usage.ttft_seconds,
    usage.total_seconds, usage.rating, usage.streamed, usage.is_waived, usage.outcome, usage.fault,
    usage.client_request_id, usage.lease_ids, usage.lease_nanos, usage.digest,
    usage.accounted_on, usage.ingested_xid
FROM (
    SELECT 'event' AS kind, event_id, organization_id, caller_id, supply_id, origin_id,
        input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, input_nanos,
        cached_input_nanos, output_nanos, queue_seconds, ttft_seconds, total_seconds, rating,
        streamed, is_waived, outcome, fault, client_request_id, lease_ids, lease_nanos, digest,
        accounted_on, ingested_xid
    FROM metering_usage_event
UNION ALL
    SELECT 'correction', event_id, organization_id, caller_id, supply_id, origin_id,
        input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, input_nanos,
        cached_input_nanos, output_nanos, queue_seconds, ttft_seconds, total_seconds, rating,
        streamed, is_waived, outcome, fault, client_request_id, lease_ids, lease_nanos, digest,
        accounted_on, ingested_xid
    FROM metering_usage_correction
) AS usage
LEFT JOIN metering_caller AS caller ON caller.id = usage.caller_id
LEFT JOIN metering_supply AS supply ON supply.id = usage.supply_id
LEFT JOIN metering_origin AS origin ON origin.id = usage.origin_id;

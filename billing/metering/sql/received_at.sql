-- When a request was received: the millisecond its id begins with. Loaded by migrations/0002.
--
-- PostgreSQL 17 and later have uuid_extract_timestamp for this, but 17 answers NULL for UUIDv7, and
-- 15 and 16 have no such function. This definition gives what PostgreSQL 18's gives, on all of them.
-- It isn't STRICT and names one parameter once, so that the planner can inline it.
CREATE OR REPLACE FUNCTION metering_received_at(event_id uuid) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT to_timestamp(
        ('x' || encode(substring(uuid_send(event_id) FOR 6), 'hex'))::bit(48)::bigint
        / 1000.0::float8
    )
$$;

-- Days of usage events. Loaded by migrations/0001_initial.

-- The smallest UUIDv7 of a UTC day: events are partitioned by the moment their ids begin with.
CREATE FUNCTION metering_first_id(day date) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (left(hex, 8) || '-' || right(hex, 4) || '-0000-0000-000000000000')::uuid
    FROM lpad(to_hex((day - DATE '1970-01-01')::bigint * 86400000), 12, '0') AS hex
$$;

-- When a request was received. received_at.sql has the definition in use.
CREATE FUNCTION metering_received_at(event_id uuid) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT to_timestamp(
        ('x' || translate(left(event_id::text, 13), '-', ''))::bit(48)::bigint / 1000.0
    )
$$;

-- Make the partition of a day, attached empty: that waits for no ingest and keeps none waiting.
-- A day that was archived is not made again.
CREATE FUNCTION metering_make_day(made date) RETURNS void LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    part text := 'metering_usage_event_' || to_char(made, 'YYYYMMDD');
BEGIN
    PERFORM pg_advisory_xact_lock(1885434484);
    IF to_regclass(part) IS NOT NULL THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM metering_day WHERE day = made AND dropped_at IS NOT NULL) THEN
        RAISE EXCEPTION '% is archived', made USING ERRCODE = 'restrict_violation';
    END IF;
    EXECUTE format(
        'CREATE TABLE %I (LIKE metering_usage_event INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part
    );
    EXECUTE format(
        'ALTER TABLE metering_usage_event ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
        part, metering_first_id(made), metering_first_id(made + 1)
    );
END $$;

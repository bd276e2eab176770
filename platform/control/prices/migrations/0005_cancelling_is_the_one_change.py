"""A published price book may be cancelled before it takes effect, and nothing else of it changes;
a book that prices a band prices its base too."""

from django.db import migrations

FORWARD = """
CREATE OR REPLACE FUNCTION prices_refuse_published_book() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    cancelling text[] := ARRAY['cancelled_at', 'cancelled_by_id'];
BEGIN
    IF OLD.published_at IS NULL THEN
        IF TG_OP = 'UPDATE' AND NEW.published_at IS NOT NULL THEN
            PERFORM FROM prices_price AS band
            WHERE band.book_id = NEW.id AND band.input_tokens_min > 0 AND NOT EXISTS (
                SELECT FROM prices_price AS base
                WHERE base.input_tokens_min = 0
                  AND (base.book_id, base.variant_id, base.tier)
                    = (band.book_id, band.variant_id, band.tier));
            IF FOUND THEN
                RAISE EXCEPTION 'price book % has a band without its base', NEW.id
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
        END IF;
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.cancelled_at IS NULL AND NEW.cancelled_at IS NOT NULL
        AND OLD.effective_at > clock_timestamp()
        AND to_jsonb(NEW) - cancelling = to_jsonb(OLD) - cancelling
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'price book % is published and never changes', OLD.id
        USING ERRCODE = 'integrity_constraint_violation';
END $$;
"""

BACKWARD = """
CREATE OR REPLACE FUNCTION prices_refuse_published_book() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.published_at IS NOT NULL THEN
        RAISE EXCEPTION 'price book % is published and never changes', OLD.id
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("prices", "0004_bands_contracts_and_cancelling")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]

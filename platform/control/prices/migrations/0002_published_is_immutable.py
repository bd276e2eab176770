"""A published price book and its prices never change: the database refuses it to everybody."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION prices_refuse_published_book() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.published_at IS NOT NULL THEN
        RAISE EXCEPTION 'price book % is published and never changes', OLD.id
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE TRIGGER prices_published_book BEFORE UPDATE OR DELETE ON prices_price_book
    FOR EACH ROW EXECUTE FUNCTION prices_refuse_published_book();

-- FOR SHARE waits for a publication under way, which locks the book's row.
CREATE FUNCTION prices_refuse_price_of_published_book() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    books text[] := ARRAY[
        CASE WHEN TG_OP <> 'INSERT' THEN OLD.book_id END,
        CASE WHEN TG_OP <> 'DELETE' THEN NEW.book_id END
    ];
BEGIN
    PERFORM 1 FROM prices_price_book WHERE id = ANY (books) FOR SHARE;
    PERFORM 1 FROM prices_price_book WHERE id = ANY (books) AND published_at IS NOT NULL;
    IF FOUND THEN
        RAISE EXCEPTION 'the price belongs to a published price book, which never changes'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE TRIGGER prices_price_of_published_book BEFORE INSERT OR UPDATE OR DELETE ON prices_price
    FOR EACH ROW EXECUTE FUNCTION prices_refuse_price_of_published_book();
"""

BACKWARD = """
DROP TRIGGER prices_price_of_published_book ON prices_price;
DROP FUNCTION prices_refuse_price_of_published_book();
DROP TRIGGER prices_published_book ON prices_price_book;
DROP FUNCTION prices_refuse_published_book();
"""


class Migration(migrations.Migration):
    dependencies = [("prices", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]

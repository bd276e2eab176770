"""A database from before bands and contracts: its published prices are of the default tier then,
in their rows and in the feed, and as closed to changes as ever."""

import json
from importlib import import_module

import psycopg
import pytest

from control.catalog.models import Variant
from tests.fixtures.organizations import make_model, make_variant

MIGRATION = "control.prices.migrations.0004_bands_contracts_and_cancelling"
RECORD = {"price_id": "price_old", "variant_id": "v", "tier": "standard", "input_nanos": 1}
# Such rows as there were before the constraint that the migration renews.
BEFORE = """
ALTER TABLE prices_price DROP CONSTRAINT price_tier_is_known;
INSERT INTO prices_price_book (id, name, created_at) VALUES ('book_old', 'Old', now());
INSERT INTO prices_price (id, book_id, variant_id, tier, input_tokens_min, input_nanos,
    cached_input_nanos, output_nanos)
VALUES ('price_old', 'book_old', '{variant}', '{tier}', 0, 1, 1, 1);
UPDATE prices_price_book SET effective_at = now(), published_at = now() WHERE id = 'book_old';
INSERT INTO publish_change (kind, record_id, record, created_at)
VALUES ('price', 'price_old', '{record}', now());
SET CONSTRAINTS ALL IMMEDIATE;
"""
NEWEST = "SELECT record FROM publish_change WHERE record_id = 'price_old' ORDER BY version DESC"


@pytest.fixture
def variant(transactional_db: None) -> Variant:
    return make_variant(make_model())


@pytest.mark.parametrize(("tier", "becomes"), [("standard", "default"), ("batch", "batch")])
def test_the_tier_standard_becomes_default_in_published_books_and_in_the_feed(
    owner_connection: psycopg.Connection, variant: Variant, tier: str, becomes: str
) -> None:
    record = json.dumps(RECORD | {"tier": tier})
    before = BEFORE.format(variant=variant.id, tier=tier, record=record)
    with owner_connection.transaction(force_rollback=True):
        owner_connection.execute(before)  # type: ignore[arg-type]
        owner_connection.execute(import_module(MIGRATION).RENAME_TIER)
        rows = owner_connection.execute("SELECT tier FROM prices_price").fetchall()
        (newest,) = owner_connection.execute(NEWEST).fetchone() or ("",)
        assert (rows, json.loads(newest)) == ([(becomes,)], RECORD | {"tier": becomes})
        refused = pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="never changes")
        with refused, owner_connection.transaction():
            owner_connection.execute("UPDATE prices_price SET tier = 'flex'")

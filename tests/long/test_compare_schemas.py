"""Dumps of schemas are compared by what they say, and not by its order."""

import json
from pathlib import Path

import pytest

from tests.long.compare_schemas import main

pytestmark = pytest.mark.unit
BEFORE = """
SET check_function_bodies = false;
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'never; changes'; END $$;
-- a comment; with a semicolon
CREATE TABLE public.old_owner (
    id bigint NOT NULL,
    kinds text DEFAULT 'a, b'::text,
    CONSTRAINT some_kind CHECK (((kinds = 'a'::text) OR (kinds <> ''::text)))
)
WITH (fillfactor='50');
CREATE TABLE public.other (kinds text);
CREATE INDEX old_owner_kinds_0a1b2c3d ON public.old_owner USING btree (kinds);
CREATE TRIGGER pgtrigger_stays_0a1b2 BEFORE UPDATE ON public.old_owner EXECUTE FUNCTION refuse();
COMMENT ON TRIGGER pgtrigger_stays_0a1b2 ON public.old_owner IS '<hash>';
ALTER TABLE ONLY public.old_owner ADD CONSTRAINT old_owner_pkey PRIMARY KEY (id);
GRANT SELECT ON TABLE public.old_owner TO app;
INSERT INTO public.old_owner (id, kinds) VALUES (1, 'made at 2026-01-02 03:04:05.678+00, with a; ');
""".replace("<hash>", "0" * 40)
RENAMED = {"old_owner": "new_owner", "old_owner.kinds": "event_types"}
SAME = """
SET check_function_bodies = false;
CREATE TABLE public.new_owner (
    event_types text DEFAULT 'a, b'::text,
    CONSTRAINT some_kind CHECK (((event_types = 'a'::text) OR (event_types <> ''::text))),
    id bigint NOT NULL
) WITH (fillfactor='50');
INSERT INTO public.new_owner (event_types, id)
VALUES ('made at 2027-11-12 13:14:15+00, with a; ', 1);
CREATE TABLE public.other (kinds text);
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'never; changes'; END $$;
CREATE INDEX new_owner_event_types_3d2c1b0a ON public.new_owner USING btree (event_types);
CREATE TRIGGER pgtrigger_stays_9f8e7 BEFORE UPDATE ON public.new_owner EXECUTE FUNCTION refuse();
COMMENT ON TRIGGER pgtrigger_stays_9f8e7 ON public.new_owner IS '<hash>';
ALTER TABLE ONLY public.new_owner ADD CONSTRAINT new_owner_pkey PRIMARY KEY (id);
GRANT SELECT ON TABLE public.new_owner TO app;
""".replace("<hash>", "1" * 40)
CHANGES = [
    ("id bigint NOT NULL", "id integer NOT NULL", "columns"),
    ("fillfactor='50'", "fillfactor='60'", "tables"),
    ("(event_types <> ''::text)", "(event_types = ''::text)", "constraints"),
    ("PRIMARY KEY", "UNIQUE", "constraints"),
    ("btree (event_types)", "btree (id)", "indexes"),
    ("BEFORE UPDATE", "BEFORE DELETE", "triggers"),
    ("never; changes", "never;  changes", "functions"),
    ("GRANT SELECT", "GRANT SELECT,UPDATE", "grants"),
    ("with a; ', 1", "with a; ', 2", "rows"),
    ("other (kinds", "other (event_types", "columns"),
    (
        "COMMENT ON TRIGGER pgtrigger_stays_9f8e7",
        "COMMENT ON TRIGGER pgtrigger_goes_9f8e7",
        "comments",
    ),
]


def compare(folder: Path, before: str, after: str, names: dict[str, str] | None = None) -> int:
    for name, text in (("before", before), ("after", after), ("names", json.dumps(names))):
        (folder / name).write_text(text)
    options = ["--names", str(folder / "names")] if names else []
    return main(["compare", str(folder / "before"), str(folder / "after"), *options])


def test_a_renamed_schema_in_another_order_is_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(tmp_path, BEFORE, SAME, RENAMED) == 0
    order, total = capsys.readouterr().out.splitlines()
    assert order == "order of columns only: public.new_owner: id, event_types → event_types, id"
    assert total.startswith("0 differences")


@pytest.mark.parametrize(("same", "changed", "kind"), CHANGES)
def test_every_change_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], same: str, changed: str, kind: str
) -> None:
    assert compare(tmp_path, BEFORE, SAME.replace(same, changed), RENAMED) == 1
    told = capsys.readouterr().out
    assert f"- {kind}: " in told
    assert f"+ {kind}: " in told


def test_without_a_map_hashes_are_compared_too(tmp_path: Path) -> None:
    assert compare(tmp_path, BEFORE, BEFORE) == 0
    assert compare(tmp_path, BEFORE, BEFORE.replace("0a1b2c3d", "3d2c1b0a")) == 1

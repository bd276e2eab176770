"""Compare two dumps of a database, statement by statement, whatever their order.

python -m tests.long.compare_schemas dump FILE                     dump a database made anew
python -m tests.long.compare_schemas compare BEFORE AFTER          exit code 1 where they differ
python -m tests.long.compare_schemas compare BEFORE AFTER --names NAMES.json

Use it where migrations are written anew or tables are renamed: dump with the old code, dump with
the new, and compare. Rows that migrations wrote belong to it; times and random ids in them do not.

NAMES.json maps old names to new ones, a whole word each: tables, indexes, constraints, triggers,
functions. `"old_table.old_column": "new_column"` renames a column where its table is mentioned.
With a map, names that Django or PostgreSQL derive from a table's name are not compared.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

TOKEN = re.compile(
    r"""--[^\n]* | '(?:[^']|'')*' | "(?:[^"]|"")*" | (\$\w*\$).*?\1 | \w+ | \s+ | .""", re.S | re.X
)
PSQL = re.compile(r"^\\\w+ .*$", re.M)
WORD = re.compile(r"\b[A-Za-z_]\w*\b")
MADE_AT_RANDOM = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\+\d\d"), "<time>"),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\b([a-z]+_)[0-9A-Za-z]{24}\b"), r"\1<id>"),
)
DERIVED = (
    (re.compile(r"\b(pgtrigger_\w+?)_[0-9a-f]{5}\b"), r"\1_<hash>"),
    (re.compile(r"\b\w+_[0-9a-f]{8}(?:_\w+)?\b"), "<derived>"),
    (re.compile(r"'[0-9a-f]{40}'"), "'<hash>'"),
)
"""Names and comments that hold a hash of a table's name."""
TABLES_OF_DJANGO = ("django_migrations", "django_content_type", "auth_permission")
"""Their rows say how the schema was made, and not what it is."""

KINDS = (
    (r"CREATE TABLE", "tables"),
    (r"CREATE SEQUENCE|ALTER SEQUENCE", "sequences"),
    (r"CREATE (?:MATERIALIZED )?VIEW", "views"),
    (r"CREATE (?:UNIQUE )?INDEX|ALTER INDEX", "indexes"),
    (r"CREATE (?:CONSTRAINT )?TRIGGER|ALTER TABLE .* TRIGGER", "triggers"),
    (r"CREATE (?:FUNCTION|PROCEDURE|AGGREGATE)", "functions"),
    (r"GRANT|REVOKE|ALTER DEFAULT PRIVILEGES|ALTER .* OWNER TO|ALTER ROLE", "grants"),
    (r"COMMENT", "comments"),
    (r"ALTER TABLE .* ADD CONSTRAINT", "constraints"),
    (r"ALTER TABLE .* ALTER COLUMN", "columns"),
    (r"INSERT|SELECT pg_catalog\.setval", "rows"),
)
TABLE = re.compile(r"CREATE TABLE (\S+) \((.*)", re.S)
ROW = re.compile(r"INSERT INTO (\S+) \((.*?)\) VALUES \((.*)\)", re.S)


@dataclass(frozen=True)
class Names:
    """How old names became new ones."""

    words: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def applied(self, statement: str) -> str:
        """Return the statement with new names."""
        found = set(WORD.findall(statement))
        renamed = dict(self.words)
        for table in found & self.columns.keys():
            renamed |= self.columns[table]
        return WORD.sub(lambda word: renamed.get(word[0]) or self._derived(word[0]), statement)

    def _derived(self, name: str) -> str:
        """Return a name that begins with its table's, such as that of a sequence."""
        for table, new in self.words.items():
            column, _, suffix = name.removeprefix(f"{table}_").rpartition("_")
            if name.startswith(f"{table}_") and suffix in ("seq", "pkey", "key", "check", "fkey"):
                column = self.columns.get(table, {}).get(column, column)
                return "_".join(filter(None, (new, column, suffix)))
        return name


@dataclass
class Schema:
    """A dump as statements by kind, and each table's columns in their order."""

    statements: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    columns: dict[str, list[str]] = field(default_factory=dict)


def read_names(text: str) -> Names:
    """Read a map of names from JSON."""
    words: dict[str, str] = {}
    columns: dict[str, dict[str, str]] = defaultdict(dict)
    for old, new in json.loads(text).items():
        table, dot, column = old.rpartition(".")
        if dot:
            columns[table][column] = new
        else:
            words[old] = new
    return Names(words, columns)


def read_schema(dump: str, names: Names | None = None, *, derived: bool = True) -> Schema:
    """Read what pg_dump wrote. `names` are applied to it; `derived` keeps names with a hash."""
    schema = Schema()
    for statement in split_statements(dump):
        renamed = names.applied(statement) if names else statement
        if not derived:
            for pattern, replacement in DERIVED:
                renamed = pattern.sub(replacement, renamed)
        _add(schema, renamed)
    return schema


def split_statements(dump: str) -> Iterator[str]:
    """Yield each statement on one line, without comments; bodies of functions stay as they are."""
    words: list[str] = []
    for match in TOKEN.finditer(PSQL.sub("", dump)):
        token = match[0]
        if token == ";":
            yield "".join(words).strip()
            words.clear()
        elif token.isspace():
            words.append("" if words and words[-1] == " " else " ")
        elif not token.startswith("--"):
            words.append(token)


def differences(before: Schema, after: Schema) -> Iterator[str]:
    """Yield a line for each statement that only one has: `- kind: …` before, `+ kind: …` after."""
    for kind in sorted(before.statements.keys() | after.statements.keys()):
        old, new = before.statements[kind], after.statements[kind]
        yield from (f"- {kind}: {one}" for one in sorted((old - new).elements()))
        yield from (f"+ {kind}: {one}" for one in sorted((new - old).elements()))


def differences_of_order(before: Schema, after: Schema) -> Iterator[str]:
    """Yield a line for each table that has the same columns in another order."""
    for table, old in sorted(before.columns.items()):
        new = after.columns.get(table, [])
        if old != new and sorted(old) == sorted(new):
            yield f"{table}: {', '.join(old)} → {', '.join(new)}"


def _add(schema: Schema, statement: str) -> None:
    kind = next((kind for start, kind in KINDS if re.match(start, statement)), "others")
    if kind == "tables" and (match := TABLE.fullmatch(statement)):
        table = match[1]
        parts, options = _up_to_closing(match[2])
        schema.statements["tables"][f"{table}{options}"] += 1
        schema.columns[table] = []
        for part in _split(parts):
            is_constraint = part.startswith("CONSTRAINT ")
            schema.statements["constraints" if is_constraint else "columns"][
                f"{table}: {part}"
            ] += 1
            if not is_constraint:
                schema.columns[table].append(part.split()[0])
    else:
        schema.statements[kind][_as_row(statement) if kind == "rows" else statement] += 1


def _as_row(statement: str) -> str:
    if match := ROW.fullmatch(statement):
        table, columns, values = match.groups()
        pairs = zip(_split(columns), _split(values), strict=True)
        statement = f"{table}: " + ", ".join(sorted(f"{name} = {value}" for name, value in pairs))
    for pattern, replacement in MADE_AT_RANDOM:
        statement = pattern.sub(replacement, statement)
    return statement


def _up_to_closing(text: str) -> tuple[str, str]:
    """Return what stands before the closing parenthesis, and what stands after it."""
    depth = 1
    for match in TOKEN.finditer(text):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return text[: match.start()], text[match.end() :]
    raise ValueError(text)


def _split(parts: str) -> Iterable[str]:
    """Split at the commas that no parentheses or quotes enclose."""
    found, depth = [""], 0
    for match in TOKEN.finditer(parts):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if match[0] == "," and depth == 0:
            found.append("")
        else:
            found[-1] += match[0]
    return [one.strip() for one in found]


def dump_prepared() -> str:
    """Prepare a database as the product does, and return what pg_dump says of it."""
    import django

    from tests.fixtures import database, postgres

    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.fixtures.settings"
    django.setup()
    server_url = postgres.ensure_running()
    try:
        database.copy_prepared(server_url, "compared")
        url = urlsplit(server_url)._replace(path="/compared").geturl()
        skipped = [f"--exclude-table-data=public.{table}*" for table in TABLES_OF_DJANGO]
        options = ["--create", "--column-inserts", "--exclude-schema=pristine", *skipped]
        command = [postgres.binary("pg_dump"), *options, url]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    finally:
        database.drop(server_url, "compared")
        database.drop_template()
        postgres.stop()


def main(arguments: list[str] | None = None) -> int:
    """Dump or compare; return the exit code."""
    summary, _, description = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.long.compare_schemas",
        description=summary,
        epilog=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    dump = commands.add_parser("dump", help="Dump a database made anew with this code.")
    dump.add_argument("file", type=Path)
    compare = commands.add_parser("compare", help="Compare two dumps.")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    compare.add_argument("--names", type=Path, help="A map of old names to new ones, as JSON.")
    options = parser.parse_args(arguments)
    if options.command == "dump":
        options.file.write_text(dump_prepared())
        return 0
    names = read_names(options.names.read_text()) if options.names else None
    before = read_schema(options.before.read_text(), names, derived=names is None)
    after = read_schema(options.after.read_text(), derived=names is None)
    found = list(differences(before, after))
    reordered = (f"order of columns only: {line}" for line in differences_of_order(before, after))
    counts = (f"{kind} {after.statements[kind].total()}" for kind in sorted(after.statements))
    total = f"{len(found)} differences in {', '.join(counts)}"
    sys.stdout.write("\n".join((*found, *reordered, total)) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

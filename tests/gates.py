"""Rules of structure that no linter knows: `python -m tests.gates`, run by `make check`.

- No file has more than 500 lines.
- No public class name is defined twice, but for a record of the contract and the model that stores
  it.
- No file imports itself through others, wherever the import stands.
- Names that were retired (`tests/retired_names.txt`) are used nowhere.
- No sentence of a docstring or comment begins without its noun ("What…", "Of…", "How long…").
- Every relative link of the documentation leads to a file, and every file or folder that a page of
  `docs/` names from the root exists.
- Migrations run while services of the previous version do: they lock no table for long, and rename
  and require nothing that those services don't know.
- Each page with a `console` block, which no test runs, has its row in `docs/contribute/testing.md`.

Most packages of `serving/` are exempt from the rule on sentences, `billing/` from all that it
doesn't keep yet.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {"control": "platform", "serving": ".", "billing": ".", "web": ".", "infra": "."}
"""Each package, and the folder that it lies in."""
LINES_MAX = 500
EXEMPT_FROM_LENGTH = ("tests/serving/", "tests/billing/")
EXEMPT_FROM_NAMES = ("billing/",)
EXEMPT_FROM_PROSE = (
    *(f"serving/{name}/" for name in ("contract", "engine", "fleet", "gateway", "limits", "pool")),
    "billing/",
)
SAME_NAME_ALLOWED = {"Command", "IdempotentRequest", "User"}
"""Django finds commands by this name; a model is not renamed once released; SCIM names a resource
after its class."""
RETIRED = Path(__file__).with_name("retired_names.txt")
TEXT = ("*.py", "*.md", "*.html", "*.toml", "Makefile")
UNSAFE_OPERATIONS = {
    "AddIndex": "AddIndexConcurrently, with atomic = False",
    "RemoveIndex": "RemoveIndexConcurrently, with atomic = False",
    "RenameField": "a new column, filled, and the old one dropped in a later release",
    "RenameModel": "a new table, filled, and the old one dropped in a later release",
    "AlterModelTable": "a new table, filled, and the old one dropped in a later release",
}
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
NAMED_PATH = re.compile(r"`((?:platform|serving|billing|web|infra|tests|docs)/[\w./-]*)(?:::\w+)?`")
CONSOLE = re.compile(r"^ *```console$", re.MULTILINE)
HEADLESS = re.compile(
    r"(?:^|(?<=[.!?] )|(?<=\n\n))(?:Of|Who|That|Whoever|What|Where|Which|Whose|How)\b.{0,40}"
)


def main() -> int:
    """Print each breach; return 1 if there is one."""
    modules = {name: path for package in SOURCES for name, path in modules_of(package)}
    breaches = [
        *long_files(),
        *repeated_classes(modules),
        *import_cycles(modules),
        *retired_names(),
        *headless_sentences(modules),
        *unsafe_migrations(),
        *broken_links(),
        *missing_paths(),
        *untested_pages(),
    ]
    for breach in breaches:
        print(breach)  # noqa: T201
    return 1 if breaches else 0


def long_files() -> Iterator[str]:
    """Yield the files with too many lines."""
    for path in _tracked("*.py"):
        lines = path.read_text().count("\n")
        place = str(path.relative_to(ROOT))
        if lines > LINES_MAX and not place.startswith(EXEMPT_FROM_LENGTH):
            yield f"{place} has {lines} lines; wanted {LINES_MAX} or fewer"


def repeated_classes(modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the public class names that several files define."""
    places = defaultdict(list)
    for path in modules.values():
        place = str(path.relative_to(ROOT))
        if place.startswith(EXEMPT_FROM_NAMES) or "migrations" in path.parts:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(place)
    for name, found in places.items():
        if len(found) > 1 and name not in SAME_NAME_ALLOWED and not _is_record_and_model(found):
            yield f"class {name} is defined in {', '.join(found)}"


def _is_record_and_model(places: list[str]) -> bool:
    """Tell whether these are a record of the contract and the model that stores it."""
    records = [place for place in places if place.startswith("serving/contract/")]
    models = [place for place in places if place.endswith("/models.py")]
    return len(records) == len(models) == 1 and len(places) == 2


def import_cycles(modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield one cycle of imports, if there is one."""
    graph = {
        name: {each for each in imports_of(path, modules) if each != name}
        for name, path in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"imports go in a circle: {' → '.join(error.args[1])}"


def retired_names() -> Iterator[str]:
    """Yield each use of a retired name."""
    names = "|".join(map(re.escape, RETIRED.read_text().split()))
    used = re.compile(rf"(?<![\w-])(?:{names})(?![\w-])")
    for pattern in TEXT:
        for path in _tracked(pattern):
            if path.name == "CHANGELOG.md":  # what changed names the old
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if found := used.search(line):
                    yield f"{path.relative_to(ROOT)}:{number} uses the retired name {found[0]}"


def headless_sentences(modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the sentences of docstrings, and beginnings of comments, that have no subject."""
    for path in modules.values():
        place = str(path.relative_to(ROOT))
        if place.startswith(EXEMPT_FROM_PROSE) or "migrations" in path.parts:
            continue
        source = path.read_text()
        texts = [
            re.sub(r"(?<!\n)\n\s*(?!\n)", " ", node.value.value)
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if isinstance(node.value.value, str)
        ]
        for text in (*texts, *_comments(source)):
            yield from (f"{place} says {found[0]!r}…" for found in HEADLESS.finditer(text))


def unsafe_migrations() -> Iterator[str]:
    """Yield the operations of migrations, other than an app's first, that stop running services."""
    for path in _tracked("*/migrations/0*.py"):
        if path.name == "0001_initial.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (reason := _danger(node)):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {reason}"


def _danger(call: ast.Call) -> str:
    """Return what is wrong with an operation of a migration, or nothing."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in UNSAFE_OPERATIONS:
        return f"has {name}; wanted {UNSAFE_OPERATIONS[name]}"
    if name == "AddField":
        values = [*call.args, *(each.value for each in call.keywords if each.arg == "field")]
        field = values[-1]
        options = {each.arg for each in field.keywords} if isinstance(field, ast.Call) else set()
        if not options & {"null", "db_default"}:
            return "adds a column that the previous version doesn't fill; wanted null or db_default"
    return ""


def broken_links() -> Iterator[str]:
    """Yield the links of the documentation that lead nowhere."""
    for page in _tracked("*.md"):
        for target in LINK.findall(page.read_text()):
            if not (page.parent / target).exists():
                yield f"{page.relative_to(ROOT)} links to {target}, which does not exist"


def missing_paths() -> Iterator[str]:
    """Yield the files and folders that the documentation names and that do not exist."""
    for page in _tracked("docs/*.md"):
        for name in NAMED_PATH.findall(page.read_text()):
            if not (ROOT / name).exists() and not (ROOT / "docs" / name).exists():
                yield f"{page.relative_to(ROOT)} names {name}, which does not exist"


def untested_pages() -> Iterator[str]:
    """Yield the pages with `console` blocks that the table of untested commands lacks."""
    table = (ROOT / "docs/contribute/testing.md").read_text()
    for page in _tracked("docs/*.md"):
        place = str(page.relative_to(ROOT / "docs"))
        if CONSOLE.search(page.read_text()) and f"| `{place}` |" not in table:
            yield f"{place} has a console block; its commands are in no row of testing.md"


def _comments(source: str) -> Iterator[str]:
    """Yield the first line of each comment that stands by itself."""
    before = ""
    for line in map(str.strip, source.splitlines()):
        if line.startswith("#") and not before.startswith("#"):
            yield line.lstrip("# ")
        before = line


def _tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", pattern], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).exists()]


def modules_of(package: str) -> Iterator[tuple[str, Path]]:
    """Yield the modules of a package, each with its file."""
    root = ROOT / SOURCES[package]
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports_of(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules of ours that a file imports, also within functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                full = f"{node.module}.{each.name}"
                found = full if full in modules else node.module
                if found in modules:
                    yield found


if __name__ == "__main__":
    sys.exit(main())

"""Every mutant that the rules can make: one operator, comparison, constant, call, lock or condition
each.

What is left out, by rule and before any is drawn: texts for people (docstrings, comments, raised
messages, logs, audit rows), alarms, annotations, imports, dunder methods, what is only remembered
to be asked for less often (functions called remember or forget, calls of the former), what only
makes statements fast (SET LOCAL of anything but lock_timeout), and bounds of effort (module
constants that end in _MAX, _SECONDS, _MILLISECONDS, _EVENTS, _AT_ONCE, or are called CHUNK or
ATTEMPTS). What stays may be equivalent all the same; then its survival is explained.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

BOOKS = (
    "billing/credit/services/*.py", "billing/credit/selectors.py", "billing/credit/sql/*.sql",
    "billing/ledger/causes.py", "billing/ledger/post.py", "billing/ledger/selectors.py",
    "billing/ledger/sql/*.sql",
    "billing/metering/batch.py", "billing/metering/claims.py", "billing/metering/days.py",
    "billing/metering/effects.py", "billing/metering/ingest.py", "billing/metering/interning.py",
    "billing/metering/judging.py", "billing/metering/staging.py",
    "billing/metering/sql/*.sql", "billing/following/closing.py", "billing/following/cursor.py",
    "billing/following/follow.py", "billing/following/posting.py",
    "billing/following/postings.py", "billing/following/rollups.py",
    "billing/following/sealing.py", "billing/following/spent.py",
    "billing/following/sql/*.sql", "billing/rating/rate.py",
    "serving/contract/price.py", "serving/contract/budget.py",
)  # fmt: skip
"""The money paths: authorization, facts, followers, ledger and rating."""
PAYMENTS = (
    "billing/payments/services/*.py", "billing/payments/syncing.py", "billing/payments/inbox.py",
)  # fmt: skip
"""How money comes in and goes back, through Stripe."""
SUITE = {
    "gateway": ("serving/gateway/**/*.py",),
    "control": ("platform/control/**/*.py",),
    "console": ("web/console/**/*.py",),
}
"""What the test suite is judged by: see suite.py."""
ROOMS = {"books": BOOKS, "payments": PAYMENTS, **SUITE}
EFFORT = re.compile(r"(_MAX|_SECONDS|_MILLISECONDS|CHUNK|_EVENTS|_AT_ONCE|ATTEMPTS\w*|LOCK_ID)$")
SETTINGS = re.compile(r"^\s*(SET LOCAL (?!lock_timeout)[^;]+(;\s*|$))+$")
TALK = re.compile(r"^(logger|audit)\.|^_record$|alarm", re.IGNORECASE)
MEMORY = re.compile(r"^_?(remember|forget_(known|claims))$")
REMEMBER = re.compile(r"^_?remember$")
SQL_WORDS = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE)\b")
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
SQL_NAME = re.compile(r"CREATE (?:FUNCTION|VIEW|TRIGGER) (\w+)")
SQL_RULES = (
    (r" >= ", " > "), (r" <= ", " < "), (r" > ", " >= "), (r" < ", " <= "), (r" <> ", " = "),
    (r" \+ ", " - "), (r" - ", " + "), (r"\bgreatest\(", "least("), (r"\bleast\(", "greatest("),
    (r"\bIS NULL\b", "IS NOT NULL"), (r"\bIS NOT NULL\b", "IS NULL"),
    (r" FOR NO KEY UPDATE\b( SKIP LOCKED)?", ""), (r" FOR UPDATE\b( SKIP LOCKED)?", ""),
    (r" SKIP LOCKED\b", ""), (r"\bmin\(", "max("), (r"\bmax\(", "min("),
    (r"(?<=\n)\s+(AND|OR) (?!.*\bBETWEEN\b)[^\n()]+(?=\n)", ""), (r"\bAND\b(?=[^\n]*=)", "OR"),
    (r"\bNOT EXISTS\b", "EXISTS"), (r"\bpg_advisory_xact_lock(_shared)?\(\S+\)", "0"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the span of a file from `start` to `end` becomes `new`."""

    path: str
    where: str
    """The function or the statement that it breaks: lines move."""
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) or "nothing" for text in (self.old, self.new))
        return f"{self.path} {self.where}: {old} → {new}"

    def applied(self, text: str) -> str:
        """Return the file's text with the change."""
        return text[: self.start] + self.new + text[self.end :]


def candidates(root: Path, rooms: str = "books") -> list[Mutant]:
    """Return all mutants of some rooms, in the order of the files."""
    found: list[Mutant] = []
    for pattern in ROOMS[rooms]:
        for path in sorted(root.glob(pattern)):
            name, text = str(path.relative_to(root)), path.read_text()
            if "migrations" in path.parts:
                continue
            make = _of_sql if path.suffix == ".sql" else _of_python
            found += make(name, text)
    return found


def _of_sql(name: str, text: str, offset: int = 0, where: str = "") -> Iterator[Mutant]:
    masked = re.sub(r"--[^\n]*|/\*.*?\*/", lambda one: "\x00" * len(one[0]), text, flags=re.S)
    for rule, new in SQL_RULES:
        for one in re.finditer(rule, masked):
            made = where or SQL_NAME.findall(masked, 0, one.start())[-1]
            start, end = offset + one.start(), offset + one.end()
            yield Mutant(name, made, start, end, one[0], new)


def _of_python(name: str, text: str) -> Iterator[Mutant]:
    starts = [0]
    for row in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    make = _Maker(name, text, starts)
    make.visit(ast.parse(text))
    yield from make.found


class _Maker(ast.NodeVisitor):
    """Walks a module and makes a mutant wherever a rule applies."""

    def __init__(self, name: str, text: str, starts: list[int]) -> None:
        self.name, self.text, self.starts = name, text, starts
        self.found: list[Mutant] = []
        self.within: list[str] = []
        self.texts: dict[str, str] = {}
        """The module's own constants that are texts."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name.startswith("__") or MEMORY.match(node.name):
            return
        defaults = (*node.args.defaults, *filter(None, node.args.kw_defaults))
        self._visit_within(node.name, *defaults, *node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)  # type: ignore[arg-type]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_within(node.name, *node.body)

    def _visit_within(self, name: str, *parts: ast.AST) -> None:
        self.within.append(name)
        for one in parts:
            self.visit(one)
        self.within.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._visit_within(ast.unparse(node.target), node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        target = ast.unparse(node.targets[0])
        if EFFORT.search(target):
            return
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            self.texts[target] = node.value.value
        if _is_sql(node.value):
            segment = ast.get_source_segment(self.text, node.value) or ""
            start = self._at(node.value.lineno, node.value.col_offset)
            self.found += _of_sql(self.name, segment, start, target)
        else:
            self._visit_within(target, *node.targets, node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value
        if not isinstance(call, ast.Call):
            return
        name = ast.unparse(call.func)
        if TALK.search(name) or REMEMBER.match(name) or self._is_setting(call):
            return
        self._add(node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if "alarms" in ast.unparse(node.target):
            return
        swap = {ast.Add: "-=", ast.Sub: "+="}.get(type(node.op))
        if swap:
            self._add(node, f"{ast.unparse(node.target)} {swap} {ast.unparse(node.value)}")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Messages are for people."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """What is asserted holds."""

    def visit_Compare(self, node: ast.Compare) -> None:
        other = COMPARISONS.get(type(node.ops[0]))
        if other and len(node.ops) == 1:
            changed = ast.Compare(node.left, [other()], node.comparators)
            self._add(node, f"({ast.unparse(changed)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        swap: Callable[[], ast.operator] | None = {ast.Add: ast.Sub, ast.Sub: ast.Add}.get(
            type(node.op)  # type: ignore[arg-type]
        )
        if swap:
            self._add(node, f"({ast.unparse(ast.BinOp(node.left, swap(), node.right))})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add(node, f"({ast.unparse(ast.BoolOp(other, node.values))})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is int:
            self._add(node, str(node.value + 1))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Formatted texts are names and words."""

    def _is_setting(self, call: ast.Call) -> bool:
        """Tell whether a statement is executed that only makes others fast."""
        said = call.args[0] if call.args else None
        text = self.texts.get(ast.unparse(said), "") if isinstance(said, ast.Name) else ""
        if isinstance(said, ast.Constant):
            text = str(said.value)
        return SETTINGS.match(text) is not None

    def _add(self, node: ast.expr | ast.stmt, new: str) -> None:
        assert node.end_lineno and node.end_col_offset is not None
        start = self._at(node.lineno, node.col_offset)
        end = self._at(node.end_lineno, node.end_col_offset)
        old = self.text[start:end]
        where = next((name for name in self.within if not name[0].isupper() or name.isupper()), "")
        self.found.append(Mutant(self.name, where, start, end, old, new))

    def _at(self, line: int, column: int) -> int:
        """Return the place of a column, which Python counts in bytes."""
        row = self.text[self.starts[line - 1] : self.starts[line]]
        return self.starts[line - 1] + len(row.encode()[:column].decode())


def _is_sql(node: ast.expr) -> bool:
    text = ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.JoinedStr):
        text = ast.unparse(node)
    return SQL_WORDS.search(text) is not None

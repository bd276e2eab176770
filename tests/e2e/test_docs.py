"""Every `sh` and `python` block of the documentation runs, page by page, as a reader pastes it into
one terminal: the variables and functions of a page's block are there in the next one."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from infra.local.config import ROOT
from tests.fixtures.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.full]

DOCS = ROOT / "docs"
BLOCK = re.compile(r"^( *)```(sh|python)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if BLOCK.search(page.read_text())
)
BLOCK_SECONDS_MAX = 300
IN_TERMINAL = """set -a; . "$0"; trap '{ export -p; declare -f; } > "$0"' EXIT"""
"""The start of each block: it takes over what the one before left, and leaves its own."""
OPERATOR_TOKEN = """\
from control.accounts.models import User
from control.operators.services import create_operator_token
from control.permissions import OPERATOR_PERMISSIONS, Actor
owner = User.objects.get(email="{email}")
permissions = OPERATOR_PERMISSIONS[owner.operator_role]
print(create_operator_token(actor=Actor.for_user(owner), name="docs", permissions=permissions)[1])
"""


@pytest.fixture(scope="module")
def reader() -> Iterator[dict[str, str]]:
    """The environment of a reader of the pages, with a platform of their own."""
    stack = Stack(engine="simulated", prepared=True)
    try:
        stack.up()
        stack.wait_ready()
        yield environment(stack)
    finally:
        stack.remove()


def environment(stack: Stack) -> dict[str, str]:
    """Return the variables that `get-started.md` sets, and an operator token."""
    script = OPERATOR_TOKEN.format(email=stack.credentials["operator"]["email"])
    made = stack.penstock("django", "shell", "--no-imports", "--command", script)
    assert made.returncode == 0, made.stderr
    tenant = stack.tenant("reader@docs.example")
    return {
        **stack.variables,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PENSTOCK_URL": stack.credentials["console_url"],
        "OPENAI_BASE_URL": stack.api_base,
        "OPENAI_API_KEY": tenant["api_key"],
        "MODEL": stack.model,
        "MANAGEMENT_KEY": tenant["manage_key"],
        "ORGANIZATION": tenant["organization_id"],
        "PROJECT": tenant["project_id"],
        "OPERATOR_EMAIL": stack.credentials["operator"]["email"],
        "OPERATOR_TOKEN": made.stdout.strip().splitlines()[-1],
    }


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs(reader: dict[str, str], page: str, tmp_path: Path) -> None:
    terminal = tmp_path / "terminal"
    terminal.touch()
    for _, language, indented in BLOCK.findall((DOCS / page).read_text()):
        text = dedent(indented)
        script = text if language == "sh" else f"python -c {shlex.quote(text)}"
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{IN_TERMINAL}\n{script}", str(terminal)],
            env=reader,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=BLOCK_SECONDS_MAX,
            check=False,
        )
        assert ran.returncode == 0, f"{text}\n{ran.stdout}\n{ran.stderr}"

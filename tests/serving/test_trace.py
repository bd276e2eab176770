"""How many files and functions a streamed request enters, and how many files, cycles of imports and
repeated class names `serving/` has: none may rise, and none falls without the table's number."""

import ast
import asyncio
import json
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.gates import ROOT, imports_of, modules_of

LIMITS: dict[str, dict[str, int]] = tomllib.loads(
    Path(__file__).with_name("trace_limits.toml").read_text()
)
SECONDS_MAX = 300.0


@pytest.mark.integration
async def test_a_request_and_a_token_enter_no_more_code_than_they_did() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.serving.trace_stream"),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    async with asyncio.timeout(SECONDS_MAX):
        told, _ = await process.communicate()
    assert process.returncode == 0
    traces: dict[str, dict[str, Any]] = json.loads(told)
    for name, trace in traces.items():
        excess = {what: trace[what] for what, most in LIMITS[name].items() if trace[what] > most}
        assert not excess, f"{name}: {excess}, limits {LIMITS[name]}; entered {trace['entered']}"


def test_serving_has_the_files_cycles_and_repeated_names_of_the_table() -> None:
    modules = dict(modules_of("serving"))
    found = {
        "files": len(modules),
        "file_cycles": sum(len(cycle) > 1 for cycle in cycles(imports(modules))),
        "repeated_names": sum(count > 1 for count in public_classes(modules).values()),
    }
    assert found == LIMITS["structure"], "where a number fell, lower it in trace_limits.toml"


def imports(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return the modules that each imports, also within functions and for types alone."""
    return {name: set(imports_of(path, modules)) - {name} for name, path in modules.items()}


def public_classes(modules: Mapping[str, Path]) -> Counter[str]:
    """Return how many files define a public class of each name."""
    return Counter(
        node.name
        for path in modules.values()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )


def cycles(graph: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """Yield the strongly connected components of a graph (Tarjan)."""
    indices, lows, path = dict[str, int](), dict[str, int](), list[str]()

    def visit(name: str) -> Iterator[set[str]]:
        indices[name] = lows[name] = len(indices)
        path.append(name)
        for other in graph[name]:
            if other not in indices:
                yield from visit(other)
                lows[name] = min(lows[name], lows[other])
            elif other in path:
                lows[name] = min(lows[name], indices[other])
        if lows[name] == indices[name]:
            at = path.index(name)
            yield set(path[at:])
            del path[at:]

    for name in graph:
        if name not in indices:
            yield from visit(name)

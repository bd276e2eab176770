"""The whole platform as a user starts it: `penstock up`, in a folder and on ports of its own."""

import asyncio
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import aiohttp
import psutil

from infra.local import readiness
from infra.local.config import NO_EMBEDDER, ROOT, LocalConfig, read_config
from infra.local.environment import home_role, postgres_url
from infra.local.home import Home
from infra.local.leftovers import find_processes
from infra.local.postgres import SUPERUSER
from infra.local.replicas import read_replicas
from infra.local.roles import APP
from infra.local.status import replica_pids
from infra.local.supervisor import Supervisor
from serving.contract.codec import decode
from serving.contract.feed import Page
from serving.contract.records import ModelRecord, PriceRecord
from serving.contract.replica import ReplicaRecord
from tests.support.engine_counters import read_metrics
from tests.support.environment import free_port_base, stack_folder_prefix
from tests.support.management import Management

PENSTOCK = Path(sys.executable).with_name("penstock")
UP_SECONDS_MAX = 240
QUICK_RESTARTS = {
    "PENSTOCK_FLEET_POLL_SECONDS": "0.2",
    "PENSTOCK_FLEET_STEADY_SECONDS": "0.1",
    "PENSTOCK_FLEET_BACKOFF_FIRST_SECONDS": "0.1",
}
"""For a simulated engine, which may be killed twenty times in a row."""
NEW_TENANT = """\
import json
from allauth.account.models import EmailAddress
from control.actor import system
from control.keys.services import mint_key
from control.tenants.models import User
from control.tenants.selectors import default_project
from control.tenants.services import create_organization
owner = User.objects.create_user("{email}", "correct horse battery staple")
EmailAddress.objects.create(user=owner, email=owner.email, verified=True, primary=True)
organization = create_organization(actor=system("tests"), name="{email}", owner=owner)
project = default_project(organization)
def mint(scopes):
    return mint_key(actor=system("tests"), project=project, name="tests", scopes=scopes)[1]
print(json.dumps({{
    "organization_id": organization.id,
    "project_id": project.id,
    "api_key": mint(["inference"]),
    "manage_key": mint(["manage"]),
}}))
"""


class Stack:
    """One running platform, and the hands that a test lays on it."""

    def __init__(self, *, engine: str, **variables: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=stack_folder_prefix()))
        self.port_base = free_port_base()
        self.variables = {
            **own_environment(),
            "PENSTOCK_HOME": str(self.folder / "home"),
            "PENSTOCK_PORT_BASE": str(self.port_base),
            "PENSTOCK_ENGINE": engine,
            "PENSTOCK_API_CALLS_PER_MINUTE": "100000",  # tests call faster than people
            "EMBEDDING_MODEL": NO_EMBEDDER,  # of which most tests need no engine
            **variables,
        }
        self.output = ""

    # What a user has.

    def up(self) -> None:
        """Start it and keep what it printed."""
        result = self.penstock("up", "--detach")
        assert result.returncode == 0, result.stdout + result.stderr
        self.output = result.stdout

    def down(self) -> None:
        """End it."""
        result = self.penstock("down")
        assert result.returncode == 0, result.stdout + result.stderr

    def remove(self) -> None:
        """End it and delete its folder; what a failed stop leaves over is reported by itself."""
        self.penstock("down")
        if not find_processes(self.config.home):
            shutil.rmtree(self.folder)

    def penstock(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one `penstock` command on this stack, with more variables if need be."""
        return subprocess.run(
            [PENSTOCK, *arguments],
            env=self.variables | variables,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=UP_SECONDS_MAX,
            check=False,
        )

    @property
    def credentials(self) -> dict:
        """What `credentials.json` holds."""
        return json.loads(self.home.credentials_file.read_text())

    @property
    def api_base(self) -> str:
        return self.credentials["api_base"]

    @property
    def api_key(self) -> str:
        return self.credentials["api_key"]

    @property
    def model(self) -> str:
        return self.config.model_id

    # What an operator has.

    @cached_property
    def config(self) -> LocalConfig:
        return read_config(self.variables)

    @property
    def home(self) -> Home:
        return Home(self.config.home)

    @property
    def supervisor(self) -> Supervisor:
        return Supervisor(self.home)

    @property
    def database_url(self) -> str:
        return self.config.database_url or postgres_url(self.config, home_role(self.home, APP))

    @property
    def superuser_url(self) -> str:
        """The embedded PostgreSQL as its superuser, whom no trigger stops."""
        return postgres_url(self.config, home_role(self.home, SUPERUSER))

    @property
    def credential(self) -> str:
        """A gateway's, to look where gateways do."""
        return self.home.credential("gateway", "test")

    def log(self, name: str) -> str:
        """Return what a process has written."""
        return self.home.log(name).read_text(errors="replace")

    def replicas(self) -> list[ReplicaRecord]:
        """Return the replicas that are ready."""
        known = read_replicas(self.config.ports.fleet, self.credential) or []
        return [replica for replica in known if replica.state == "ready"]

    def living_pid(self, name: str, *, timeout_seconds: float = 60.0) -> int:
        """Return the pid of a process, or of the `engine`; wait for it while it is restarted."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            pid = self._engine_pid() if name == "engine" else self.supervisor.pids().get(name)
            if pid is not None and psutil.pid_exists(pid):
                return pid
            time.sleep(0.1)
        raise AssertionError(f"{name} does not run")

    def _engine_pid(self) -> int | None:
        pids = replica_pids(self.home)
        return next((pids[r.replica_id] for r in self.replicas() if r.replica_id in pids), None)

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """Keep one process down for a while."""
        self.supervisor.stop_process(name)
        try:
            yield
        finally:
            self.supervisor.start_process(name)

    def is_ready(self) -> bool:
        """Tell whether every process that answers HTTP is ready, with a replica."""
        ports = self.config.ports
        return (
            readiness.control_is_ready(ports)
            and readiness.fleet_is_ready(ports)
            and readiness.gateway_is_ready(ports)
            and bool(self.replicas())
        )

    def serves(self, name: str) -> bool:
        """Tell whether one gateway, or control, is ready."""
        ports = self.config.ports
        if name == "control":
            return readiness.control_is_ready(ports)
        number = int(name.partition("-")[2] or 1)
        return readiness.answers(ports.gateway_operators[number - 1], "/readyz")

    def wait_ready(self, *, timeout_seconds: float = 120.0) -> None:
        """Wait until everything is back."""
        deadline = time.monotonic() + timeout_seconds
        while not self.is_ready():
            assert time.monotonic() < deadline, "the platform did not come back"
            time.sleep(0.2)

    def journal_is_empty(self) -> bool:
        """Tell whether billing has acknowledged every event of the first gateway."""
        return _is_empty(self.config.ports.gateway_operator)

    def journals_are_empty(self) -> bool:
        """Tell the same of all gateways."""
        return all(_is_empty(port) for port in self.config.ports.gateway_operators)

    def new_tenant(
        self, email: str = "stranger@other.example", *, credit_nanos: int = 5_000_000_000
    ) -> dict[str, str]:
        """Add an organization with its sign-up credit; return its ids and its two keys."""
        result = self.penstock(
            *("manage", "shell", "--no-imports", "--command", NEW_TENANT.format(email=email)),
            PENSTOCK_SIGNUP_CREDIT_NANOS=str(credit_nanos),
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout.strip().splitlines()[-1])

    def stranger_key(self) -> str:
        """Return the API key of another organization, the same at every call."""
        return self._stranger["api_key"]

    @cached_property
    def _stranger(self) -> dict[str, str]:
        return self.new_tenant()

    @asynccontextmanager
    async def management(self, session: aiohttp.ClientSession) -> AsyncIterator[Management]:
        """Mint and revoke keys of another organization over the management API."""
        tenant = await asyncio.to_thread(lambda: self._stranger)
        yield Management(
            session,
            self.credentials["console_url"],
            tenant["organization_id"],
            tenant["project_id"],
            tenant["manage_key"],
        )

    def published(self) -> Page:
        """Return the snapshot of control's change feed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.config.ports.control_internal)
        headers = {"authorization": f"Bearer {self.credential}"}
        with closing(connection):
            connection.request("GET", "/internal/v1/feed?after=0", headers=headers)
            return decode(connection.getresponse().read(), Page)

    def price(self) -> PriceRecord:
        """Return the list price, in force now, of the model that is served."""
        changes = self.published().changes
        models = [decode(each.record, ModelRecord) for each in changes if each.kind == "model"]
        variant_id = next(each.variant_id for each in models if each.public_id == self.model)
        prices = [decode(each.record, PriceRecord) for each in changes if each.kind == "price"]
        own = [p for p in prices if (p.variant_id, p.tier) == (variant_id, "default")]
        now = datetime.now(UTC)
        return max((p for p in own if p.effective_at <= now), key=lambda p: p.effective_at)


def _is_empty(operator_port: int) -> bool:
    # The gateway holds the file exclusively, so only it can tell.
    metrics = read_metrics(f"http://127.0.0.1:{operator_port}/metrics")
    return metrics["penstock_gateway_journal_rows"] == 0


@contextmanager
def running(*, engine: str, **variables: str) -> Iterator[Stack]:
    """Start a stack, and end it whatever happens."""
    stack = Stack(engine=engine, **variables)
    try:
        stack.up()
        yield stack
    finally:
        stack.remove()


def own_environment() -> dict[str, str]:
    """Return the environment without what the tests put into it for Django."""
    ours = ("PENSTOCK_", "DATABASE_", "REDIS_URL", "DJANGO_", "MODEL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"PENSTOCK_TEST_SESSION": os.environ["PENSTOCK_TEST_SESSION"]}

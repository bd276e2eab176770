"""A host of its own for one installation: Debian's packages and a real systemd, in a container that
systemd-nspawn runs as root, with a loopback interface and no other network."""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from tests.long.parts import PartFailed

PACKAGES = (
    *("systemd-sysv", "dbus", "python3", "python3-venv", "ca-certificates", "openssl", "curl"),
    *("postgresql", "redis-server", "nginx-light"),
)
SUITE = "bookworm"
PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "nsenter": "util-linux",
    "tar": "tar",
}
"""Each program that is needed here, and Debian's package of it."""
FROM_OUTSIDE = ("/etc/pip.conf", "/etc/ssl/certs")
"""How this machine reaches a package index; mounted while packages are installed."""
PATH = "/opt/penstock/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOOT_SECONDS = 600.0
COMMAND_SECONDS = 900.0
"""No command takes as long as a whole part."""
OFF_SECONDS = 60.0
Found = TypeVar("Found")


class CommandFailed(PartFailed):
    """A command on the host exited with another status than 0; the message holds its output."""


def wait_for(
    condition: Callable[[], Found], what: str, *, seconds: float = 600.0, every: float = 0.2
) -> Found:
    """Return what a condition returns once that is true. Raises PartFailed after `seconds`; a
    command that fails meanwhile is a condition that is not true yet."""
    deadline, last = time.monotonic() + seconds, ""
    while True:
        try:
            if found := condition():
                return found
        except CommandFailed as error:
            last = f"; {error}"
        if time.monotonic() > deadline:
            raise PartFailed(f"waited {seconds:g} s in vain for {what}{last}")
        time.sleep(every)


class Host:
    """A host whose files lie in `root`. Commands run as its root, in all of its namespaces."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "root"
        self.pid = 0
        """Of its systemd, as this machine numbers it; 0 while it is off."""

    def make(self) -> None:
        """Unpack an installed Debian, made once and kept in the folder; whatever was there before
        is gone. Raises PartFailed."""
        _require_programs()
        self.folder.mkdir(parents=True, exist_ok=True)
        archive = self.folder / "debian.tar"
        recipe = self.folder / "debian.txt"
        if not archive.exists() or recipe.read_text() != " ".join(PACKAGES):
            print(f"mmdebstrap {SUITE}: {' '.join(PACKAGES)}", flush=True)
            options = ("--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}")
            _run(["mmdebstrap", *options, SUITE, str(archive)])
            recipe.write_text(" ".join(PACKAGES))
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        _run(["tar", "--extract", "--file", str(archive), "--directory", str(self.root)])

    def install(self, script: str, *, share: Path) -> None:
        """Run a script on the host that is off, with this machine's network and way to a package
        index; `share` is its /srv/share. Raises CommandFailed."""
        mounts = [f"--bind-ro={path}" for path in FROM_OUTSIDE if Path(path).exists()]
        nspawn = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", f"-D{self.root}"]
        options = ["--resolv-conf=copy-host", f"--bind={share}:/srv/share", *mounts]
        _run([*nspawn, *options, "bash", "-euo", "pipefail", "-c", script])

    @contextmanager
    def running(self, *, share: Path) -> Iterator[None]:
        """Boot the host, and turn it off at the end of the block; `share` is its /srv/share. Raises
        PartFailed."""
        nspawn = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", f"-D{self.root}"]
        console = (self.folder / "console.log").open("wb")
        process = subprocess.Popen(
            [*nspawn, f"--bind={share}:/srv/share", "--private-network", "--boot"],
            stdin=subprocess.DEVNULL, stdout=console, stderr=console,
        )  # fmt: skip
        try:
            self.pid = wait_for(lambda: _init_of(process.pid), "systemd's first process")
            ready = ("running", "degraded")
            wait_for(lambda: self.state() in ready, "the boot", seconds=BOOT_SECONDS)
            yield
        finally:
            self.pid = 0
            _end(process)
            console.close()

    def state(self) -> str:
        """Return what systemd says of the whole host: `starting`, `running`, `degraded`."""
        return self.run("systemctl is-system-running || true").strip()

    def run(
        self, script: str, *, variables: Mapping[str, str] | None = None, user: str = "",
        given: str = "",
    ) -> str:  # fmt: skip
        """Return the output of a bash script on the running host, as root or another user, with
        `given` as its input. Raises CommandFailed."""
        environment = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/root", **(variables or {})}
        become = ["runuser", "-u", user, "--"] if user else []
        assignments = [f"{name}={value}" for name, value in environment.items()]
        command = ["nsenter", f"--target={self.pid}", "--all", "env", "-i", *assignments, *become]
        return _run([*command, "bash", "-euo", "pipefail", "-c", script], given=given)

    def outside(self, command: Sequence[str]) -> list[str]:
        """Return what runs a program of this machine in the host's network, with its /etc/hosts."""
        hosts = shlex.quote(str(self.root / "etc/hosts"))
        script = f'mount --bind {hosts} /etc/hosts; exec "$@"'
        enter = ["nsenter", f"--target={self.pid}", "--net", "unshare", "--mount"]
        return [*enter, "--propagation=private", "sh", "-ec", script, "sh", *command]

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Write a file of root's; the folder is made."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.chmod(mode)
        file.write_text(text)

    def read(self, path: str) -> str:
        """Return a file's text."""
        return (self.root / path.lstrip("/")).read_text()

    def edit(self, path: str, changes: Mapping[str, str]) -> None:
        """Replace texts in a file. Raises PartFailed where one does not occur."""
        text = self.read(path)
        for before, after in changes.items():
            if before not in text:
                raise PartFailed(f"{path} has no {before!r} to replace by {after!r}")
            text = text.replace(before, after)
        (self.root / path.lstrip("/")).write_text(text)


def _require_programs() -> None:
    if os.geteuid() != 0:
        raise PartFailed("systemd-nspawn needs root: run this part as root")
    missing = {PROGRAMS[name] for name in PROGRAMS if shutil.which(name) is None}
    if missing:
        raise PartFailed(f"programs are missing; run: apt-get install {' '.join(sorted(missing))}")


def _end(nspawn: subprocess.Popen[bytes]) -> None:
    """End a host: in order if it can, by SIGKILL of its systemd, and so of all its processes, if it
    does not within OFF_SECONDS."""
    nspawn.terminate()
    try:
        nspawn.wait(OFF_SECONDS)
    except subprocess.TimeoutExpired:
        if systemd := _init_of(nspawn.pid):
            os.kill(systemd, signal.SIGKILL)
        nspawn.wait()


def _init_of(pid: int) -> int:
    """Return the systemd that a systemd-nspawn has started, 0 as long as there is none."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in children:
        with suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                return int(child)
    return 0


def _run(command: Sequence[str], *, given: str = "") -> str:
    """Return a command's output. Raises CommandFailed, also after COMMAND_SECONDS."""
    with tempfile.TemporaryFile("w+") as errors:
        try:
            ran = subprocess.run(
                command, input=given, stdout=subprocess.PIPE, stderr=errors, text=True, check=False,
                timeout=COMMAND_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            message = f"{command[-1]!r} did not end within {COMMAND_SECONDS:g} s"
            raise CommandFailed(message) from error
        errors.seek(0)
        if ran.returncode:
            words = (ran.stdout + errors.read()).strip()[-4000:]
            raise CommandFailed(f"{command[-1]!r} exited with {ran.returncode}: {words}")
    return ran.stdout

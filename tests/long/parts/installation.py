"""Penstock installed on a host of its own, by the commands of the documentation's page.

PostgreSQL, Redis, nginx and systemd are Debian's; each process of Penstock runs under its unit. A
command that is not on the page fails the part: page and truth are the same.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from urllib.parse import urlsplit

from infra.local.config import ROOT
from tests.long.parts import PartFailed
from tests.long.parts.host import Host, wait_for

DOMAIN = "example.com"
CONSOLE, API = f"https://console.{DOMAIN}", f"https://api.{DOMAIN}/v1"
GATEWAYS = {"eu-1": (8701, 8703), "eu-2": (8711, 8713)}
"""Public and operator port of each gateway, as `penstock init` numbers them."""
UNITS = (
    *("penstock-control", "penstock-worker", "penstock-scheduler", "penstock-fleet"),
    *(f"penstock-gateway@{name}" for name in GATEWAYS),
)
OPERATOR = {
    "OPERATOR_EMAIL": "operator@example.com",
    "PENSTOCK_URL": CONSOLE,
    "OPENAI_BASE_URL": API,
}
CERTIFICATE = "/usr/local/share/ca-certificates/penstock.crt"
MAIL_PORT = 2525
ENVIRONMENT = "set -a; . /etc/penstock/control.env; . /etc/penstock/owner.env; set +a"
BLOCK = re.compile(r"^( *)```sh\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SETTINGS = re.compile(r"^( *)```ini\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


class Page:
    """A page of `docs/operate/`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (ROOT / "docs/operate" / f"{name}.md").read_text()
        self.lines = {line.strip().removeprefix("$ ") for line in self.text.splitlines()}

    def step(self, command: str, changes: Mapping[str, str] | None = None) -> str:
        """Return a command of the page, with what an operator puts in for its examples. Raises
        PartFailed if the page does not have it."""
        if command not in self.lines:
            raise PartFailed(f"docs/operate/{self.name}.md does not have the command {command!r}")
        for before, after in (changes or {}).items():
            command = command.replace(before, after)
        return command

    def settings(self, first: str, changes: Mapping[str, str]) -> str:
        """Return the block of settings that begins with a line, with what an operator puts in for
        its examples. Raises PartFailed if the page does not have it."""
        blocks = (dedent(text) for _, text in SETTINGS.findall(self.text))
        found = next((block for block in blocks if block.startswith(f"{first}\n")), None)
        if found is None:
            raise PartFailed(
                f"docs/operate/{self.name}.md has no settings that begin with {first!r}"
            )
        for before, after in changes.items():
            found = found.replace(before, after)
        return found

    def script(self) -> str:
        """Return all that the page tells a reader to paste into one terminal."""
        return "\n".join(dedent(text) for _, text in BLOCK.findall(self.text))


@dataclass
class Installation:
    """Penstock on a host, installed by the commands of a page."""

    host: Host
    page: Page = field(default_factory=lambda: Page("deploy"))

    @property
    def packages(self) -> Path:
        """The folder of fetched packages, the host's /srv/share."""
        return self.host.folder / "packages"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Boot the host while the block lasts."""
        with self.host.running(share=self.packages):
            self.host.run(
                "systemd-run --quiet --unit=mail-server python3 -u -W ignore -m smtpd -n"
                f" -c DebuggingServer 127.0.0.1:{MAIL_PORT}"
            )
            yield

    def make(self) -> None:
        """Install everything on a new host, and leave it off. Raises PartFailed."""
        wheel = self.build_wheel()
        timed("make a host of Debian's packages", self.host.make)
        timed("install the wheel with its constraints", lambda: self.install_packages(wheel))

    def set_up(self) -> None:
        """Follow the page on the running host, from the configuration to TLS. Raises
        PartFailed."""
        timed("write the configuration", self.write_configuration)
        timed("prepare PostgreSQL", self.prepare_postgres)
        timed("prepare Redis", self.prepare_redis)
        timed("create the tables and the first operator", self.create_tables)
        timed("put nginx with TLS in front", self.put_tls_in_front)
        timed("start the units", self.start_units)

    def build_wheel(self, source: Path = ROOT) -> Path:
        """Build the wheel of a checkout as the page says; return it."""
        folder = self.host.folder / "dist"
        shutil.rmtree(folder, ignore_errors=True)
        command = self.page.step("pip wheel --no-deps --wheel-dir dist .").split()
        words = [str(folder) if word == "dist" else word for word in command]
        ran = subprocess.run(
            [sys.executable, "-m", *words], cwd=source, capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise PartFailed(f"no wheel can be built: {ran.stderr.strip()[-2000:]}")
        (wheel,) = folder.glob("penstock-*.whl")
        print(
            f"wheel of {wheel.stat().st_size / 1e6:.0f} MB, sha256 {digest(wheel)[:12]}", flush=True
        )
        return wheel

    def install_packages(self, wheel: Path) -> None:
        """Make the environment of the version that /opt/penstock names. Packages are fetched once,
        and then come from the folder of earlier runs."""
        srv = self.host.root / "srv"
        (srv / "dist").mkdir(exist_ok=True)
        shutil.copy(wheel, srv / "dist")
        shutil.copytree(ROOT / "infra", srv / "infra", dirs_exist_ok=True, ignore=_not_copied)
        self.packages.mkdir(exist_ok=True)
        install = self.page.step(
            "/opt/penstock-0.3.0/bin/pip install -c infra/constraints.txt"
            " 'penstock[control,fonts-cjk] @ file:///srv/dist/penstock-0.3.0-py3-none-any.whl'"
        )
        fetch = install.replace("pip install", "pip --quiet download --dest /srv/share")
        constraints = digest(ROOT / "infra/constraints.txt")
        fetched = self.packages / "fetched.txt"
        is_fetched = fetched.exists() and fetched.read_text() == constraints
        steps = [
            "cd /srv",
            self.page.step("python3.11 -m venv /opt/penstock-0.3.0"),
            *([] if is_fetched else [fetch]),
            "rm -f /srv/share/penstock-*.whl",
            "export PIP_NO_INDEX=1 PIP_FIND_LINKS=/srv/share",
            install.replace("pip install", "pip --quiet install"),
            self.page.step("ln -sfn /opt/penstock-0.3.0 /opt/penstock"),
        ]
        self.host.install("\n".join(steps), share=self.packages)
        fetched.write_text(constraints)

    def write_configuration(self) -> None:
        """Write the files, edit what the page says, and copy them to /etc/penstock."""
        names = [f"{name}.{DOMAIN}" for name in ("console", "api")]
        self.host.write("/etc/hosts", f"127.0.0.1 localhost {' '.join(names)}\n")
        command = self.page.step(
            "penstock init --production penstock-config --domain example.com --gateway eu-1"
            " --gateway eu-2"
        )
        self.host.run(f"cd /root && {command}")
        self.host.edit(
            "/root/penstock-config/control.env",
            {
                f'# EMAIL_URL="smtp://USER:PASSWORD@smtp.{DOMAIN}:587"': (
                    f'EMAIL_URL="smtp://127.0.0.1:{MAIL_PORT}?tls=false"'
                ),
                "# PENSTOCK_SUPPORT_EMAIL": "PENSTOCK_SUPPORT_EMAIL",
            },
        )
        self.host.run(
            "mkdir -m 755 /etc/penstock\ninstall -m 600 /root/penstock-config/*.env /etc/penstock"
        )

    def prepare_postgres(self) -> None:
        """Take the shipped settings, and make roles and database."""
        settings = "/etc/postgresql/15/main/conf.d/penstock.conf"
        self.host.write(settings, (ROOT / "infra/postgres/penstock.conf").read_text())
        self.host.edit(
            settings,
            {
                "shared_buffers = 2GB  # EDIT": "shared_buffers = 256MB",
                "effective_cache_size = 5GB  # EDIT": "effective_cache_size = 1GB",
            },
        )
        self.host.run("systemctl restart postgresql@15-main")
        roles = self.page.step(
            "psql -f penstock-config/roles.sql postgresql://postgres@db.internal/postgres",
            {"-f penstock-config/roles.sql": "--quiet", "postgresql://postgres@db.internal/": ""},
        )
        given = self.host.read("/root/penstock-config/roles.sql")
        self.host.run(f"cd / && {roles}", user="postgres", given=given)

    def prepare_redis(self) -> None:
        """Give Redis its users and its policy."""
        more = "\naclfile /etc/redis/redis.acl\nmaxmemory-policy noeviction\n"
        self.host.run(
            "install -o redis -g redis -m 600 /root/penstock-config/redis.acl /etc/redis/\n"
            "cat >> /etc/redis/redis.conf\nsystemctl restart redis-server",
            given=more,
        )
        named = "aclfile /etc/redis/redis.acl"
        if named not in self.page.text or "maxmemory-policy noeviction" not in self.page.text:
            raise PartFailed(f"docs/operate/{self.page.name}.md does not say how Redis is set up")

    def create_tables(self) -> None:
        """Migrate, and make the first operator."""
        upgrade = self.page.step("penstock upgrade")
        environment = self.page.step(ENVIRONMENT)
        operator = self.page.step("penstock django createsuperuser")
        email = OPERATOR["OPERATOR_EMAIL"]
        said = self.host.run(
            f"{environment}\n{upgrade}\n{operator} --noinput --email {email}",
            variables={"DJANGO_SUPERUSER_PASSWORD": "a long password of an operator"},
        )
        print(said.strip(), flush=True)

    def put_tls_in_front(self) -> None:
        """Make a certificate that the host trusts, and give nginx the shipped configuration."""
        names = f"DNS:console.{DOMAIN},DNS:api.{DOMAIN}"
        self.host.run(
            "mkdir -p /etc/penstock/tls\ncd /etc/penstock/tls\n"
            "openssl req -x509 -nodes -days 2 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1"
            f" -subj /CN=api.{DOMAIN} -addext subjectAltName={names}"
            " -keyout api.key -out api.crt 2>/dev/null\n"
            "cp api.key console.key; cp api.crt console.crt\n"
            f"cp api.crt {CERTIFICATE}; update-ca-certificates >/dev/null"
        )
        self.host.write("/etc/nginx/nginx.conf", (ROOT / "infra/nginx/nginx-http.conf").read_text())
        line = "server 127.0.0.1:8701 max_fails=2 fail_timeout=5s;"
        ports = [public for public, _ in GATEWAYS.values()]
        servers = "\n        ".join(line.replace("8701", str(port)) for port in ports)
        self.host.edit("/etc/nginx/nginx.conf", {line: servers})
        self.host.run("nginx -t -q && systemctl restart nginx")

    def start_units(self) -> None:
        """Copy the units, make their users, enable and start them; wait until all are ready."""
        commands = (
            "cp infra/systemd/penstock*.service infra/systemd/penstock.target /etc/systemd/system/",
            "install -D -m 644 infra/systemd/penstock-sysusers.conf /etc/sysusers.d/penstock.conf",
            "systemd-sysusers",
            "systemctl daemon-reload",
            "systemctl enable penstock.target penstock-control penstock-worker penstock-scheduler",
            "systemctl enable penstock-fleet penstock-gateway@eu-1 penstock-gateway@eu-2",
            "systemctl start penstock.target",
        )
        steps = [self.page.step(each) for each in commands]
        self.host.run("\n".join(("cd /srv", *steps)))
        wait_for(self.is_ready, "control and both gateways ready")

    def is_ready(self) -> bool:
        """Tell whether control, the fleet and each gateway say that they are ready."""
        ports = (8700, 8704, *(operator for _, operator in GATEWAYS.values()))
        addresses = " ".join(f"http://127.0.0.1:{port}/readyz" for port in ports)
        self.host.run(f"curl -fsS --max-time 5 {addresses}")
        return True

    def variable(self, file: str, name: str) -> str:
        """Return a variable's value in a file of /etc/penstock. Raises PartFailed."""
        text = self.host.read(f"/etc/penstock/{file}")
        found = re.search(rf'^{name}="(.*)"$', text, re.MULTILINE)
        if found is None:
            raise PartFailed(f"{file} does not set {name}")
        return found[1]

    def database_port(self) -> int:
        """Return the port of the PostgreSQL that the services use."""
        url = urlsplit(self.variable("control.env", "DATABASE_URL"))
        return url.port or 5432

    def sql(self, query: str) -> list[list[str]]:
        """Return the rows of a query, as a superuser."""
        psql = f"psql -XAtq -F $'\\t' -v ON_ERROR_STOP=1 -p {self.database_port()} penstock"
        said = self.host.run(f"cd / && {psql}", user="postgres", given=query)
        return [line.split("\t") for line in said.splitlines()]

    def penstock(self, arguments: str) -> str:
        """Return the output of a command of operators."""
        return self.host.run(f"{ENVIRONMENT}\npenstock {arguments}")


def timed(what: str, step: Callable[[], object]) -> None:
    """Take a step, and print how long it took."""
    began = time.monotonic()
    step()
    print(f"  {time.monotonic() - began:6.1f} s  {what}", flush=True)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _not_copied(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name in ("demo_model", "demo_embedder", "__pycache__")}

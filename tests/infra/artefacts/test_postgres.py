"""The shipped files for PostgreSQL and PgBouncer, and a database that is made with them."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from infra.local.config import ROOT
from infra.local.django import run_django
from infra.local.postgres import ADDRESS, DATABASE, SUPERUSER, prepare
from infra.local.processes import RUN_VARIABLE
from infra.production import Choices, configuration, write_files
from tests.fixtures.environment import free_port
from tests.fixtures.postgres import binary
from tests.fixtures.programs import program
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long]
FOLDER = ROOT / "infra/postgres"
PASSWORDS = {"owner": "it's the owner's", "app": "the app's"}
NAMES = {each: f"artefacts_{each}_{os.getpid()}" for each in ("owner", "app", "database")}


def make_database(postgres_url: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script of roles as an operator does."""
    pairs = (NAMES | variables).items()
    arguments = [each for name, value in pairs for each in ("-v", f"{name}={value}")]
    command = [
        binary("psql"),
        "-X",
        "-q",
        *arguments,
        "-f",
        str(FOLDER / "roles.sql"),
        postgres_url,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def made(postgres_url: str) -> Iterator[str]:
    """The database that the script makes, run twice; removed with its roles in the end."""
    passwords = {f"{role}_password": password for role, password in PASSWORDS.items()}
    for _ in range(2):
        ran = make_database(postgres_url, **passwords)
        assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")
    yield urlsplit(postgres_url)._replace(path=f"/{NAMES['database']}").geturl()
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"DROP DATABASE {NAMES['database']} WITH (FORCE)")
        for role in PASSWORDS:
            server.execute(f"DROP ROLE {NAMES[role]}")


def url_of(role: str, url: str) -> str:
    """Return an address as one of the script's roles."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    user = f"{NAMES[role]}:{quote(PASSWORDS[role])}"
    return urlsplit(url)._replace(netloc=f"{user}@{host}").geturl()


def test_without_a_password_nothing_is_made(postgres_url: str) -> None:
    ran = make_database(postgres_url, owner_password="x", database="artefacts_none")
    assert ran.returncode == 3
    assert "app_password is not set" in ran.stderr
    with psycopg.connect(postgres_url) as server:
        found = server.execute("SELECT 1 FROM pg_database WHERE datname = 'artefacts_none'")
        assert found.fetchone() is None


def test_the_owner_has_the_database_and_the_application_a_place_in_it(made: str) -> None:
    with psycopg.connect(url_of("owner", made), autocommit=True) as owner:
        owner.execute("CREATE TABLE owned (id bigint)")
        owner.execute("DROP TABLE owned")
    with psycopg.connect(url_of("app", made), autocommit=True) as app:
        for statement in ("CREATE TABLE mine (id bigint)", "CREATE SCHEMA mine"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                app.execute(statement)


def test_postgresql_reads_its_settings(tmp_path: Path) -> None:
    text = (FOLDER / "penstock.conf").read_text()
    (tmp_path / "postgresql.conf").write_text(text.replace("ssl = on  # EDIT", "ssl = off  #"))
    command = [binary("postgres"), "-C", "max_connections", "-D", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "200\n"), ran.stderr


@pytest.fixture
def pooled(made: str, tmp_path: Path) -> Iterator[str]:
    """The database through PgBouncer with the shipped configuration, edited where it is marked."""
    place, port = urlsplit(made), free_port()
    server = f"host={place.hostname} port={place.port} dbname={NAMES['database']}"
    edits = {
        r"^penstock = .*": f"{NAMES['database']} = {server}",
        r"^listen_port = .*": f"listen_port = {port}",
        r"^auth_file = .*": f"auth_file = {tmp_path}/userlist.txt",
        r"^logfile = .*": f"logfile = {tmp_path}/log",
        r"^pidfile = .*": f"pidfile = {tmp_path}/pid",
    }
    lines = (FOLDER / "pgbouncer.ini").read_text().splitlines()
    for number, line in enumerate(lines):
        if lines[number - 1].startswith("; EDIT"):
            for pattern, words in edits.items():
                line = re.sub(pattern, words, line)  # noqa: PLW2901
        lines[number] = line
    (tmp_path / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
    (tmp_path / "userlist.txt").write_text(f'"{NAMES["app"]}" "{PASSWORDS["app"]}"\n')
    for path in (tmp_path, *tmp_path.iterdir()):
        path.chmod(0o777)
    for parent in tmp_path.parents[:-2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    command = [program("pgbouncer", package="pgbouncer"), str(tmp_path / "pgbouncer.ini")]
    # Root may not run it.
    process = subprocess.Popen(command, user="nobody" if os.geteuid() == 0 else None)
    url = urlsplit(url_of("app", made))
    url = url._replace(netloc=f"{url.netloc.rpartition('@')[0]}@127.0.0.1:{port}")
    try:
        wait_until(lambda: connects(url.geturl()) or process.poll() is not None)
        assert process.poll() is None
        yield url.geturl()
    finally:
        process.terminate()
        process.wait()


def connects(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def test_a_database_so_made_is_upgraded_and_served_through_the_pooler(
    made: str, request: pytest.FixtureRequest
) -> None:
    urls = {"DATABASE_URL": url_of("app", made), "DATABASE_OWNER_URL": url_of("owner", made)}
    settings = {"DJANGO_SETTINGS_MODULE": "control.settings", RUN_VARIABLE: ""}
    words = run_django(os.environ | urls | settings, "upgrade")
    assert words.strip() == f"Migrated; {NAMES['app']} has its rights and no more."
    with psycopg.connect(request.getfixturevalue("pooled")) as app:
        found = app.execute("SHOW statement_timeout").fetchone()
    assert found == ("30s",), "what the role has, a session from the pooler has too"


def test_notifications_pass_the_pooler(made: str, pooled: str) -> None:
    with psycopg.connect(pooled, autocommit=True) as listener:
        listener.execute("LISTEN news")
        with psycopg.connect(made, autocommit=True) as other:
            other.execute("NOTIFY news, 'heard'")
        (found,) = listener.notifies(timeout=60, stop_after=1)
        assert found.payload == "heard"


@pytest.fixture
def fresh_cluster(tmp_path: Path) -> Iterator[str]:
    """The superuser's address of a server that has no role and no database of Penstock."""
    server = prepare(tmp_path / "cluster" / "data", port=free_port(), password="x")
    url = f"postgresql://{SUPERUSER}:x@{ADDRESS}:{server.port}/postgres"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            server.command("fsync=off"), user=server.system_user, cwd=os.sep, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: connects(url) or process.poll() is not None)
        assert process.poll() is None, Path(log.name).read_text()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {DATABASE}")
        yield url
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait()


def test_the_written_script_makes_what_the_written_addresses_lead_to(
    fresh_cluster: str, tmp_path: Path
) -> None:
    files = configuration(Choices("example.com", database_host=ADDRESS))
    write_files(tmp_path / "etc", files)
    command = [binary("psql"), "-X", "-q", "-f", str(tmp_path / "etc/roles.sql"), fresh_cluster]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")
    written = {}
    for line in (files["control.env"] + files["owner.env"]).splitlines():
        name, _, value = line.partition("=")
        if name in ("DATABASE_URL", "DATABASE_OWNER_URL"):
            url = urlsplit(value.strip('"'))
            port = urlsplit(fresh_cluster).port
            written[name] = url._replace(netloc=f"{url.netloc}:{port}").geturl()
    settings = {"DJANGO_SETTINGS_MODULE": "control.settings", RUN_VARIABLE: ""}
    words = run_django(os.environ | written | settings, "upgrade")
    assert words.strip() == "Migrated; penstock_app has its rights and no more."
    with psycopg.connect(written["DATABASE_URL"]) as app:
        assert app.execute("SELECT current_user").fetchone() == ("penstock_app",)

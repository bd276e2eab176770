"""Days on which an operator changes an installation that serves: secrets are rotated, the database
moves to another cluster by a dump or by a standby, and a later version is installed and taken back.

Each follows the documentation's pages, and none may cost a request.
"""

import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from infra.local.config import ROOT
from tests.long.parts import PartFailed
from tests.long.parts.days import Day
from tests.long.parts.host import wait_for
from tests.long.parts.installation import ENVIRONMENT, GATEWAYS, Installation, Page, digest

CONTROL_UNITS = ("penstock-control", "penstock-worker", "penstock-scheduler")
CONTROL, FLEET = "control.env", "fleet.env"
ON_GATEWAYS = tuple(f"gateway-{name}.env" for name in GATEWAYS)
PAUSE = "sleep 8"
"""Between two gateways, so that the balancer sends to the first one again."""
CLUSTERS = {"main": 5432, "restored": 5433, "standby": 5434, "earlier": 5435}
"""PostgreSQL's clusters on the host, by name, and their ports."""
LATER_EVENTS = 200
"""Requests that a recovery to a point in time leaves out."""
REPLACE_FILES = (
    "systemctl stop postgresql@15-main",
    "mv /var/lib/postgresql/15/main /var/lib/postgresql/15/damaged",
    "cp -a /archive/base-2026-11-28 /var/lib/postgresql/15/main",
    "cp -an /var/lib/postgresql/15/damaged/pg_wal/0* /var/lib/postgresql/15/main/pg_wal/",
)
RECOVERY = "restore_command = 'cp /archive/wal/%f %p'"
RESENT = """
FROM metering_resent_usage WHERE lineage NOT IN (SELECT lineage FROM following_cursor);
"""
"""Gateways that ship to a database which the consumers of usage do not know yet."""
SOURCES = ("billing", "infra", "platform", "serving", "web")
LATER = "0.3.1"
LATER_MIGRATION = """
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("{app}", "{last}")]
    operations = [
        migrations.RunSQL("ALTER TABLE {app}_database_identity ADD COLUMN later text", "SELECT 1")
    ]
"""
LATER_APP = "feed"
MIGRATED = "SELECT count(*) FROM information_schema.columns WHERE column_name = 'later';"


def rotate_pepper(on: Installation) -> None:
    """Rotate the key pepper, gateways first."""
    old, new = on.variable(CONTROL, "PENSTOCK_KEY_PEPPER"), secrets.token_urlsafe(32)
    both = {"PENSTOCK_KEY_PEPPER": new, "PENSTOCK_KEY_PEPPERS_PREVIOUS": old}
    for file in ON_GATEWAYS:
        set_variables(on, file, both)
    restart_gateways(on)
    set_variables(on, CONTROL, both)
    restart(on, *CONTROL_UNITS)


def rotate_encryption_key(on: Installation) -> None:
    """Rotate the encryption key: known first, then used, then everything encrypted anew."""
    name, previous = "PENSTOCK_ENCRYPTION_KEY", "PENSTOCK_ENCRYPTION_KEYS_PREVIOUS"
    old, new = on.variable(CONTROL, name), secrets.token_urlsafe(32)
    set_variables(on, CONTROL, {previous: new})
    restart(on, *CONTROL_UNITS)
    set_variables(on, CONTROL, {name: new, previous: old})
    restart(on, *CONTROL_UNITS)
    on.penstock("credentials rotate-encryption")
    left = on.penstock("credentials rotate-encryption --dry-run").strip().splitlines()[-1]
    if left != "0 to encrypt anew":
        raise PartFailed(f"after a rotation of the encryption key: {left}")


def rotate_internal_secret(on: Installation) -> None:
    """Rotate the root secret of the internal API, and with it each gateway's credential."""
    name, previous = "PENSTOCK_INTERNAL_SECRET", "PENSTOCK_INTERNAL_SECRET_PREVIOUS"
    old, new = on.variable(CONTROL, name), secrets.token_urlsafe(32)
    for values in ({previous: new}, {name: new, previous: old}):
        set_variables(on, CONTROL, values)
        set_variables(on, FLEET, values)
        restart(on, *CONTROL_UNITS, "penstock-fleet")
    for gateway, file in zip(GATEWAYS, ON_GATEWAYS, strict=True):
        credential = on.penstock(f"credentials issue {gateway}").strip()
        set_variables(on, file, {"PENSTOCK_INTERNAL_CREDENTIAL": credential})
    restart_gateways(on)
    for file in (CONTROL, FLEET):
        set_variables(on, file, {previous: None})
    restart(on, *CONTROL_UNITS, "penstock-fleet")


def rotate_database_password(on: Installation) -> None:
    """Set a new password of the application's role. New connections fail until control, worker and
    scheduler know it."""
    new = secrets.token_urlsafe(32)
    url = on.variable(CONTROL, "DATABASE_URL")
    set_variables(on, CONTROL, {"DATABASE_URL": re.sub(r":[^:@]+@", f":{new}@", url)})
    on.sql(f"ALTER ROLE penstock_app PASSWORD '{new}';")
    restart(on, *CONTROL_UNITS)


def rotate_redis_passwords(on: Installation) -> None:
    """Rotate both passwords of Redis, whose users may have two at once."""
    for user, files in (("default", (CONTROL,)), ("gateway", ON_GATEWAYS)):
        url, new = on.variable(files[0], "REDIS_URL"), secrets.token_urlsafe(32)
        old = url.rpartition("@")[0].rpartition(":")[2]
        change_redis_user(on, f"{user} >{new}")
        for file in files:
            set_variables(on, file, {"REDIS_URL": url.replace(old, new)})
        if files == (CONTROL,):
            restart(on, *CONTROL_UNITS)
        else:
            restart_gateways(on)
        change_redis_user(on, f"{user} <{old}")


def rotate_other_secrets(on: Installation) -> None:
    """Change the secrets that have no second value: sessions, the playground, prefix salts."""
    django = ("PENSTOCK_SECRET_KEY", "PENSTOCK_PLAYGROUND_SECRET")
    set_variables(on, CONTROL, {name: secrets.token_urlsafe(32) for name in django})
    restart(on, *CONTROL_UNITS)
    salt = secrets.token_urlsafe(32)
    for file in ON_GATEWAYS:
        set_variables(on, file, {"PENSTOCK_SALT_SECRET": salt})
    restart_gateways(on)


def restore_elsewhere(on: Installation) -> None:
    """Move to another cluster by a backup that is made and restored while gateways serve."""
    page = Page("backup-and-restore")
    back_up(on, "first")
    on.host.run(page.step(f"systemctl stop {' '.join(CONTROL_UNITS)}"))
    make_cluster(on, "restored")
    restore_into(on, page, "restored", "first")
    on.host.run(page.step(f"systemctl start {' '.join(CONTROL_UNITS)}"))


def promote_standby(on: Installation) -> None:
    """Fail over to a standby that has everything, after its primary was stopped. The consumers of
    usage continue by themselves."""
    page = Page("backup-and-restore")
    port = on.database_port()
    data, new = "/var/lib/postgresql/15/standby", CLUSTERS["standby"]
    on.host.run(
        f"pg_createcluster --port {new} 15 standby >/dev/null\nrm -rf {data}\n"
        f"cp -r /etc/postgresql/15/main/conf.d /etc/postgresql/15/standby\n"
        f"runuser -u postgres -- pg_basebackup -p {port} -D {data} -R -X stream -c fast\n"
        "systemctl start postgresql@15-standby"
    )
    caught_up = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn();"
    wait_for(lambda: on.sql(caught_up) == [["1"]], "a standby without lag")
    ((before,),) = on.sql("SELECT max(lineage) FROM following_cursor;")
    continued = f"SELECT bool_and(lineage <> '{before}') FROM following_cursor;"  # noqa: S608
    primary = next(name for name, number in CLUSTERS.items() if number == port)
    on.host.run(f"systemctl stop postgresql@15-{primary}")
    on.host.run(page.step("pg_ctlcluster 15 main promote", {"main": "standby"}))
    use_cluster(on, "standby")
    restart(on, *CONTROL_UNITS)
    wait_for(lambda: on.sql(continued) != [["f"]], "the consumers of usage continue by themselves")


def recover_to_a_point(on: Installation) -> None:
    """Go back to the time before the newest requests, from a base backup and the archived log. The
    gateways send again what is missing, and the consumers of usage go on after `rebuild-usage`."""
    page, backup = Page("backup-and-restore"), {"base-$(date +%F)": "base-2026-11-28"}
    settings = "/etc/postgresql/15/main/conf.d"
    on.host.run(page.step("install -d -o postgres -g postgres -m 700 /archive /archive/wal"))
    on.host.write(f"{settings}/archive.conf", page.settings("archive_mode = on", {}))
    on.host.run(page.step("systemctl restart postgresql@15-main"))
    base = "runuser -u postgres -- pg_basebackup -D /archive/base-$(date +%F) -c fast"
    on.host.run(f"cd / && {page.step(base, backup)}")
    ((target,),) = on.sql("SELECT clock_timestamp();")
    ((booked,),) = on.sql("SELECT count(*) FROM metering_usage_event;")
    later = f"SELECT count(*) > {booked} + {LATER_EVENTS} FROM metering_usage_event;"  # noqa: S608
    wait_for(lambda: on.sql(later) != [["f"]], "usage that the recovery leaves out")
    on.host.run(page.step(f"systemctl stop {' '.join(CONTROL_UNITS)}"))
    for command in REPLACE_FILES:
        on.host.run(page.step(command))
    recovery = page.settings(RECOVERY, {"2026-11-28 14:05:00+00": target})
    on.host.write(f"{settings}/recovery.conf", recovery)
    signal = "/var/lib/postgresql/15/main/recovery.signal"
    on.host.run(page.step(f"runuser -u postgres -- touch {signal}"))
    on.host.run(page.step("systemctl start postgresql@15-main"))
    state = "SELECT pg_get_wal_replay_pause_state(), pg_last_xact_replay_timestamp()"
    look = page.step(f"runuser -u postgres -- psql -c '{state}'")
    paused = "SELECT pg_get_wal_replay_pause_state() = 'paused';"
    wait_for(lambda: on.sql(paused) != [["f"]], "the end of the recovery")
    on.host.run(f"cd / && {look}")
    on.host.run(page.step("pg_ctlcluster 15 main promote"))
    on.host.run(f"rm {settings}/recovery.conf {settings}/archive.conf")  # Other clusters copy it.
    on.host.run(f"{page.step(ENVIRONMENT)}\n{page.step('penstock upgrade')}")
    on.host.run(page.step(f"systemctl start {' '.join(CONTROL_UNITS)}"))
    is_finished = f"SELECT count(finished_at) = {len(GATEWAYS)} {RESENT}"
    wait_for(lambda: on.sql(is_finished) != [["f"]], "all gateways to have finished")
    if on.sql(f"SELECT sum(missing_count) {RESENT}") == [["0"]]:
        raise PartFailed("nothing was missing after a recovery to a point in time")
    rebuild = page.step("penstock billing rebuild-usage")
    print(f"    {on.penstock(rebuild.removeprefix('penstock ')).strip()}", flush=True)


def upgrade(on: Installation) -> None:
    """Install a later version beside the one that runs, migrate, and restart one after another."""
    page = Page("upgrade")
    back_up(on, "before-upgrade")
    wheel = build_later(on)
    shutil.copy(wheel, on.host.root / "srv/dist")
    commands = (
        "python3.11 -m venv /opt/penstock-0.3.1",
        "/opt/penstock-0.3.1/bin/pip install -c infra/constraints.txt"
        " 'penstock[control,fonts-cjk] @ file:///srv/dist/penstock-0.3.1-py3-none-any.whl'",
        "ln -sfn /opt/penstock-0.3.1 /opt/penstock",
    )
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/srv/share", "PIP_QUIET": "1"}
    steps = [page.step(command) for command in commands]
    on.host.run("\n".join(("cd /srv", *steps)), variables=offline)
    on.host.run(f"{page.step(ENVIRONMENT)}\n{page.step('penstock upgrade')}")
    restart_all(on, page)
    if on.sql(MIGRATED) != [["1"]]:
        raise PartFailed("the later version's migration was not applied")


def roll_back(on: Installation) -> None:
    """Take the later version back: the version before, on the backup of before the upgrade."""
    page = Page("upgrade")
    on.host.run(page.step(f"systemctl stop {' '.join(CONTROL_UNITS)}"))
    on.host.run(page.step("ln -sfn /opt/penstock-0.3.0 /opt/penstock"))
    make_cluster(on, "earlier")
    restore_into(on, Page("backup-and-restore"), "earlier", "before-upgrade")
    on.host.run(page.step(f"systemctl start {' '.join(CONTROL_UNITS)}"))
    restart_all(on, page)
    if on.sql(MIGRATED) != [["0"]]:
        raise PartFailed("the database of the later version is still used")


ROTATIONS: Mapping[str, Callable[[Installation], None]] = {
    "rotate the key pepper": rotate_pepper,
    "rotate the encryption key": rotate_encryption_key,
    "rotate the internal secret": rotate_internal_secret,
    "rotate the database's password": rotate_database_password,
    "rotate Redis' passwords": rotate_redis_passwords,
    "change the other secrets": rotate_other_secrets,
}
CHANGES = (
    *(Day(name, do) for name, do in ROTATIONS.items()),
    Day("recover to a point in time", recover_to_a_point),
    Day("restore into another cluster", restore_elsewhere),
    Day("promote a standby", promote_standby),
    Day("upgrade", upgrade),
    Day("roll back", roll_back),
)


def set_variables(on: Installation, file: str, values: Mapping[str, str | None]) -> None:
    """Set variables in a file of /etc/penstock; None takes one out."""
    path = f"/etc/penstock/{file}"
    lines = on.host.read(path).splitlines()
    lines = [line for line in lines if line.partition("=")[0] not in values]
    lines += [f'{name}="{value}"' for name, value in values.items() if value is not None]
    on.host.write(path, "\n".join((*lines, "")), mode=0o600)


def restart(on: Installation, *units: str) -> None:
    """Restart units, one after another, and wait until all are ready."""
    for unit in units:
        on.host.run(f"systemctl restart {unit}")
        wait_for(on.is_ready, f"all ready after a restart of {unit}")


def restart_gateways(on: Installation) -> None:
    """Restart the gateways, one after another, with the pause that the page wants."""
    page = Page("upgrade")
    for name in GATEWAYS:
        restart(on, f"penstock-gateway@{name}")
        on.host.run(page.step(PAUSE))


def restart_all(on: Installation, page: Page) -> None:
    """Restart every process as the page of upgrades says."""
    for command in (
        "systemctl restart penstock-control",
        "systemctl restart penstock-worker penstock-scheduler",
        "systemctl restart penstock-fleet",
    ):
        on.host.run(page.step(command))
        wait_for(on.is_ready, f"all ready after `{command}`")
    for name in GATEWAYS:
        page.step(f"systemctl restart penstock-gateway@{name}")
    restart_gateways(on)


def change_redis_user(on: Installation, rule: str) -> None:
    """Change a user of Redis, and its file of users."""
    url = on.variable(CONTROL, "REDIS_URL")
    lines = f"ACL SETUSER {rule}\nACL SAVE\n"
    said = on.host.run(f"redis-cli --no-auth-warning -u '{url}'", given=lines)
    if said.split() != ["OK", "OK"]:
        raise PartFailed(f"Redis refused ACL SETUSER: {said}")


def use_cluster(on: Installation, name: str) -> None:
    """Let all commands and services use a cluster from their next start on."""
    for file, variable in ((CONTROL, "DATABASE_URL"), ("owner.env", "DATABASE_OWNER_URL")):
        url = on.variable(file, variable)
        there = re.sub(r"@127\.0\.0\.1(:\d+)?/", f"@127.0.0.1:{CLUSTERS[name]}/", url)
        set_variables(on, file, {variable: there})


def make_cluster(on: Installation, name: str) -> None:
    """Make an empty cluster with the roles and passwords of the files, and use it."""
    on.host.run(
        f"pg_createcluster --port {CLUSTERS[name]} 15 {name} >/dev/null\n"
        f"cp -r /etc/postgresql/15/main/conf.d /etc/postgresql/15/{name}\n"
        f"systemctl start postgresql@15-{name}"
    )
    use_cluster(on, name)
    roles = on.host.read("/root/penstock-config/roles.sql")
    app = on.variable(CONTROL, "DATABASE_URL").rpartition("@")[0].rpartition(":")[2]
    roles = re.sub(r"\\set app_password '.*'", lambda _: f"\\set app_password '{app}'", roles)
    psql = f"cd / && psql --quiet -p {CLUSTERS[name]} postgres"
    on.host.run(psql, user="postgres", given=roles)


def back_up(on: Installation, name: str) -> None:
    """Make a backup, as the page says."""
    page = Page("backup-and-restore")
    folder = page.step("install -d -o penstock-control -g penstock-control -m 750 /backup")
    backup = page.step(
        "runuser -u penstock-control -- penstock backup /backup/$(date +%FT%H%M)",
        {"$(date +%FT%H%M)": name},
    )
    on.host.run("\n".join((page.step(ENVIRONMENT), folder, backup)))


def restore_into(on: Installation, page: Page, name: str, backup: str) -> None:
    """Restore a backup into a cluster's empty database, as the page says."""
    restore = "runuser -u penstock-control -- penstock restore /backup/2026-11-28T0300"
    named = {"2026-11-28T0300": backup}
    steps = [page.step(each, named) for each in (ENVIRONMENT, f"{restore} --dry-run", restore)]
    said = on.host.run("\n".join(steps))
    print(f"    {name}: {said.strip().splitlines()[-1]}", flush=True)


def build_later(on: Installation) -> Path:
    """Build the wheel of a later version: this one, with a migration more."""
    source = on.host.folder / "later"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        text = (ROOT / name).read_text()
        (source / name).write_text(text.replace('version = "0.3.0"', f'version = "{LATER}"'))
    migrations = source / "platform/control" / LATER_APP / "migrations"
    last = max(path.stem for path in migrations.glob("0*.py"))
    later = LATER_MIGRATION.format(app=LATER_APP, last=last)
    (migrations / "0999_later.py").write_text(later)
    wheel = on.build_wheel(source)
    print(f"    {wheel.name}, sha256 {digest(wheel)[:12]}", flush=True)
    return wheel

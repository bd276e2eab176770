"""`penstock`: one command for the whole platform. A command imports its code when it is called."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from infra import administration
from infra.command import (
    EXIT_BUG,
    EXIT_FAILED,
    EXIT_NOT_RUNNING,
    PASS_HELP,
    PASS_THROUGH,
    command_group,
    interrupt_on_signals,
    owner_environment,
    require_extra,
    run_management_command,
)
from infra.local.config import LocalConfig, LocalError, read_config
from infra.local.state_dir import StateDirectory

app = command_group(
    "Penstock: a metered, multi-tenant LLM inference platform.\n\n"
    "up, down, status, logs and reset run it on this machine (penstock[local]); run starts one"
    " service of a production platform; the rest administers one.\n\n"
    "Exit status: 0 done, 1 failed, 2 wrong arguments, 3 nothing runs, 70 a bug.",
    name="penstock",
)
app.add_typer(administration.run, name="run")
app.add_typer(administration.credentials, name="credentials")
app.add_typer(administration.gateways, name="gateways")
app.add_typer(administration.fleet_host, name="fleet")
app.add_typer(administration.operators, name="operators")
app.add_typer(administration.audit, name="audit")
app.add_typer(administration.billing, name="billing")


@app.command()
def up(
    detach: Annotated[bool, typer.Option(help="Return when everything is ready.")] = False,
    model: Annotated[str | None, typer.Option(help="A folder or a Hugging Face id.")] = None,
    engine: Annotated[str | None, typer.Option(help="vllm or simulated.")] = None,
    gateways: Annotated[str | None, typer.Option(help="How many gateway processes.")] = None,
) -> None:
    """Run the whole platform on this machine; Ctrl-C ends it, data stay."""
    require_extra("local")
    from infra.demo.examples import summary
    from infra.local.foreground import loading_models
    from infra.local.up import up as start

    config = read_config(os.environ, engine=engine, model=model, gateways=gateways)
    if not detach:
        interrupt_on_signals()
    seeded = start(config)
    typer.echo(summary(seeded.credentials, config, loading_models(config, seeded.models)))
    if not detach:
        _stay(config, seeded.models)


@app.command()
def down() -> None:
    """End what `up` started in this home folder, in order; data stay."""
    require_extra("local")
    from infra.local.down import down as end

    home = StateDirectory(read_config(os.environ).home)
    typer.echo("Ended." if end(home) else f"Nothing runs in {home.path}.")


@app.command()
def reset(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """End what runs and delete its data: books, keys, logins, logs."""
    require_extra("local")
    from infra.local.down import down as end

    home = StateDirectory(read_config(os.environ).home)
    if not home.exists:
        raise LocalError(f"{home.path} is no home of Penstock's; nothing was deleted")
    if not yes:
        typer.confirm(f"Delete {home.path} and everything in it?", abort=True)
    end(home)
    shutil.rmtree(home.path)
    typer.echo(f"Deleted {home.path}.")


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show processes, replicas, ports and versions; exit status 3 if nothing runs."""
    require_extra("local")
    from infra.local.status import read_status, render

    found = read_status(read_config(os.environ))
    typer.echo(json.dumps(found, indent=2) if as_json else render(found))
    if not found["running"]:
        raise typer.Exit(EXIT_NOT_RUNNING)


@app.command()
def logs(
    names: Annotated[list[str] | None, typer.Argument(help="Processes; all by default.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Of each log.")] = 20,
) -> None:
    """Show the logs of the processes and of the engine replicas."""
    from infra.local import logs as following

    home = StateDirectory(read_config(os.environ).home)
    files = following.log_files(home, names or [])
    if not files:
        raise LocalError(f"no such log in {home.logs}")
    for name, path in files.items():
        for line in following.last_lines(path, lines):
            typer.echo(f"{following.prefix(name, typer.colors.CYAN)} {line}")
    if follow:
        following.follow_logs(home, names or [], goes_on=lambda: True)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where the files go; made if it is missing.")],
    *,
    domain: Annotated[str, typer.Option(help="Its console. and api. are what customers use.")],
    production: Annotated[
        bool, typer.Option("--production", help="Say that it is for a production platform.")
    ] = False,
    gateway: Annotated[
        list[str] | None, typer.Option(help="A gateway's name; repeat it for each.")
    ] = None,
    database_host: Annotated[str, typer.Option(help="PostgreSQL.")] = "127.0.0.1",
    redis_host: Annotated[str, typer.Option(help="Redis.")] = "127.0.0.1",
    private_address: Annotated[
        str, typer.Option(help="Control's host's, which only the platform's hosts reach.")
    ] = "127.0.0.1",
    fleet_address: Annotated[
        str, typer.Option(help="The same of the host of fleet and gateways, if it is another.")
    ] = "",
    trusted_proxies: Annotated[
        str, typer.Option(help="The load balancers' networks.")
    ] = "127.0.0.1/32",
) -> None:
    """Write the configuration of a production platform: environment files with fresh secrets,
    PostgreSQL's roles and Redis's users. It never overwrites a file."""
    from infra.production import Choices, configuration, next_steps, write_files

    if not production:
        raise LocalError("init needs --production; `penstock up` makes what a local platform needs")
    names = tuple(dict.fromkeys(gateway or ["1"]))
    choices = Choices(
        domain, names, database_host, redis_host, private_address, trusted_proxies, fleet_address
    )
    texts = configuration(choices)
    write_files(folder, texts)
    for line in next_steps(folder, list(texts)):
        typer.echo(line)


@app.command(context_settings=PASS_THROUGH)
def upgrade(context: typer.Context) -> None:
    """Migrate the database; safe to repeat.

    It also grants the services their rights and verifies that they have no more. Needs
    penstock[control], and DATABASE_OWNER_URL beside DATABASE_URL."""
    run_management_command(["upgrade", *context.args], as_owner=True)


@app.command()
def backup(
    folder: Annotated[Path, typer.Argument(help="A new folder, outside the database's host.")],
) -> None:
    """Dump the database and copy archived usage into a folder, while services run.

    Needs penstock[control], its environment, DATABASE_OWNER_URL and pg_dump. The secrets are not in
    it: keep them elsewhere."""
    require_extra("control")
    from infra.backup import back_up

    for line in back_up(folder, owner_environment()):
        typer.echo(line)


@app.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="What `penstock backup` wrote.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, and restore nothing.")] = False,
) -> None:
    """Restore a backup into an empty database, compute usage anew, and check the books.

    Stop control, worker and scheduler first; gateways may run. Needs penstock[control], the
    environment with the secrets of the backup, DATABASE_OWNER_URL and pg_restore."""
    require_extra("control")
    from infra.backup import restore as restore_backup

    for line in restore_backup(folder, owner_environment(), dry_run=dry_run):
        typer.echo(line)


@app.command(context_settings=PASS_THROUGH)
def check(context: typer.Context) -> None:
    """Check the control plane's configuration.

    --deploy says what is unfit for production, and exits with 1 if something is; --json prints it
    as JSON. Needs penstock[control]. With the environment of a fleet that uses Ray, --deploy checks
    its cluster's settings instead."""
    if "--deploy" in context.args and os.environ.get("PENSTOCK_FLEET_LAUNCHER") == "ray":
        from infra.ray_check import cluster_problems

        problems = cluster_problems(os.environ)
        for problem in problems or ["The Ray cluster has all settings."]:
            typer.echo(problem)
        raise typer.Exit(EXIT_FAILED if problems else 0)
    run_management_command(["check", *context.args])


@app.command(context_settings=PASS_HELP)
def django(context: typer.Context) -> None:
    """Run one of Django's management commands: `penstock django help` lists them."""
    run_management_command(context.args or ["help"], as_owner=True)


@app.command(context_settings=PASS_HELP)
def vllm(context: typer.Context) -> None:
    """Run vLLM's own command line: `penstock vllm bench serve --help`."""
    from infra.local.vllm import run

    run(context.args)


def main() -> None:
    """Run a command; a mistake is one line, a bug one line and a traceback for those who ask."""
    try:
        app(prog_name="penstock")
    except LocalError as error:
        _leave(f"penstock: {error}", EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("PENSTOCK_DEBUG") == "1":
            raise
        what = f"{type(error).__name__}: {error}"
        _leave(f"penstock: a bug: {what} (PENSTOCK_DEBUG=1 shows where)", EXIT_BUG)


def _stay(config: LocalConfig, models: Mapping[str, str]) -> None:
    """Show what runs until Ctrl-C or until somebody else ends the run; then leave no process."""
    from infra.local.down import down as end
    from infra.local.foreground import watch

    try:
        typer.echo("Ctrl-C ends it.")
        watch(config, models)
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the second Ctrl-C of an impatient person
        typer.echo("\nEnding:")
        end(StateDirectory(config.home))
    typer.echo("Ended; data stay.")


def _leave(message: str, code: int) -> NoReturn:
    typer.secho(message, fg=typer.colors.RED, err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()

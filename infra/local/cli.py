"""`penstock`: one command line for the whole platform."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from infra.local.config import LocalConfig, LocalError, read_config
from infra.local.state_dir import StateDirectory

EXIT_FAILED = 1
EXIT_NOT_RUNNING = 3
EXIT_BUG = 70  # EX_SOFTWARE
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

app = typer.Typer(
    name="penstock",
    help="Penstock: a metered, multi-tenant LLM inference platform.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)


@app.command()
def up(
    detach: Annotated[bool, typer.Option(help="Return when everything is ready.")] = False,
    model: Annotated[str | None, typer.Option(help="A folder or a Hugging Face id.")] = None,
    engine: Annotated[str | None, typer.Option(help="vllm or simulated.")] = None,
    gateways: Annotated[str | None, typer.Option(help="How many gateway processes.")] = None,
) -> None:
    """Run the whole platform on this machine; Ctrl-C ends it, data stay."""
    from infra.demo.examples import summary
    from infra.local.up import up as start

    config = read_config(os.environ, engine=engine, model=model, gateways=gateways)
    home = StateDirectory(config.home)
    if not detach:
        _end_on_signals()
    credentials = start(config)
    embedder_id = config.embedder_id if config.embedder_weights else None
    typer.echo(summary(credentials, home, config.model_id, embedder_id))
    if not detach:
        _stay(home)


@app.command()
def down() -> None:
    """End what `up` started in this home folder, in order; data stay."""
    from infra.local.down import down as end

    home = StateDirectory(read_config(os.environ).home)
    typer.echo("Ended." if end(home) else f"Nothing runs in {home.path}.")


@app.command()
def reset(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """End what runs and delete its data: books, keys, logins, logs."""
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
    """Show processes, replicas, ports and versions; exit code 3 when nothing runs."""
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
def gateway() -> None:
    """Run a gateway here, configured by the environment."""
    _become("serving.gateway")


@app.command("internal-credential")
def internal_credential(
    name: Annotated[str, typer.Argument(help="Of the gateway: small letters, digits, dashes.")],
    number: Annotated[int, typer.Option(min=1, help="One more than the last one's.")] = 1,
) -> None:
    """Print a gateway's credential, made from PENSTOCK_INTERNAL_SECRET; control and the fleet know
    it at once, and until PENSTOCK_INTERNAL_REVOKED names it or a later number."""
    from serving.contract.credential import ROOT_VARIABLE, Caller, issue

    root = _environment().get(ROOT_VARIABLE)
    if not root:
        raise LocalError(f"{ROOT_VARIABLE} is not set, and there is no run in this home folder")
    try:
        typer.echo(issue(root, Caller("gateway", name, number)))
    except ValueError as error:
        raise LocalError(f"this is no gateway: {error}") from error


@app.command()
def fleet() -> None:
    """Run the fleet here, configured by the environment."""
    _become("serving.fleet")


@app.command()
def control() -> None:
    """Run the control plane here: console, admin, management API, internal API."""
    _become("control.server")


@app.command()
def worker(
    queues: Annotated[
        list[str] | None, typer.Argument(help="books, general, outbox, long_jobs; all by default.")
    ] = None,
) -> None:
    """Run the worker here: followers of usage, invoices, mails and webhooks, proofs, exports."""
    _become("control.worker", *(queues or []))


@app.command()
def beat(
    schedule: Annotated[
        Path | None, typer.Option(help="A file that remembers what ran, across restarts.")
    ] = None,
) -> None:
    """Run the scheduler here, which tells the worker what is due; run one for all workers."""
    from infra.local.processes import beat_command

    command = list(beat_command(schedule))
    os.execve(command[0], command, _environment())


@app.command(context_settings=PASS_THROUGH)
def manage(context: typer.Context) -> None:
    """Run one of Django's management commands: `penstock manage help` lists them."""
    from infra.local.django import exec_django

    exec_django(_owner_environment(), context.args or ["help"])


@app.command("check-integrity", context_settings=PASS_THROUGH)
def check_integrity(context: typer.Context) -> None:
    """Prove the books: balanced entries, cached balances, settled holds."""
    from infra.local.django import exec_django

    exec_django(_environment(), ["check_integrity", *context.args])


@app.command("check-production", context_settings=PASS_THROUGH)
def check_production(context: typer.Context) -> None:
    """Say what of the configuration is not fit for customers; exit code 1 if something is not."""
    from infra.local.django import exec_django

    exec_django(_environment(), ["check_production", *context.args])


@app.command("rotate-vault", context_settings=PASS_THROUGH)
def rotate_vault(context: typer.Context) -> None:
    """Encrypt stored secrets with the newest vault key: --dry-run counts them."""
    from infra.local.django import exec_django

    exec_django(_environment(), ["rotate_vault", *context.args])


@app.command("verify-audit", context_settings=PASS_THROUGH)
def verify_audit(context: typer.Context) -> None:
    """Prove the chain of deeds and print its end: --holds POSITION:DIGEST."""
    from infra.local.django import exec_django

    exec_django(_environment(), ["verify_audit", *context.args])


@app.command("reconcile-followers", context_settings=PASS_THROUGH)
def reconcile_followers(context: typer.Context) -> None:
    """After a restore: make again what follows from the usage of open days, and go on."""
    from infra.local.django import exec_django

    exec_django(_owner_environment(), ["reconcile_followers", *context.args])


@app.command(context_settings=PASS_THROUGH)
def archive(context: typer.Context) -> None:
    """Move old sealed days of usage into Parquet files; --before DATE, --dry-run."""
    from infra.local.django import exec_django

    exec_django(_owner_environment(), ["archive", *context.args])


@app.command("simulate-books", context_settings=PASS_THROUGH)
def simulate_books(
    context: typer.Context,
    server: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_SIMULATION_SERVER",
            help="A PostgreSQL as its superuser; its own by default.",
        ),
    ] = None,
) -> None:
    """Run the books against seeds of gateways, crashes and clocks: --seeds N --start S."""
    from infra.local.simulate import simulate_books as simulate

    _end_on_signals()
    raise typer.Exit(simulate(context.args, server_url=server))


@app.command("close-month", context_settings=PASS_THROUGH)
def close_month(context: typer.Context) -> None:
    """Invoice a month that is over: --period 2026-11 [--organization ID] [--dry-run]."""
    from infra.local.django import exec_django

    exec_django(_environment(), ["close_month", *context.args])


@app.command("release-gateway", context_settings=PASS_THROUGH)
def release_gateway(context: typer.Context) -> None:
    """Give back what a lost gateway's leases hold: ID --reason WORDS [--dry-run]."""
    from infra.local.django import exec_django

    exec_django(_environment(), ["release_gateway", *context.args])


@app.command("stripe-check", context_settings=PASS_THROUGH)
def stripe_check(context: typer.Context) -> None:
    """Run a payment's whole path against a Stripe test account; refuses live keys."""
    from infra.local.django import exec_django

    exec_django(_environment(), ["stripe_check", *context.args])


@app.command("export-focus", context_settings=PASS_THROUGH)
def export_focus(context: typer.Context) -> None:
    """Write usage and cost as FinOps FOCUS CSV: --from DAY --to DAY [--organization ID]."""
    from infra.local.django import exec_django

    exec_django(_environment(), ["export_focus", *context.args])


@app.command(context_settings=PASS_THROUGH)
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


def _environment() -> dict[str, str]:
    """Return the environment as it is, filled up from the home folder where there is one."""
    from infra.local.processes import OWNER_VARIABLE, RUN_VARIABLE, build_environment

    config: LocalConfig = read_config(os.environ)
    home = StateDirectory(config.home)
    local = build_environment(config, home, os.environ) if home.exists else {}
    local.pop(RUN_VARIABLE, None)  # not a part of the run: `penstock down` leaves it alone
    found = {**local, **os.environ}
    found.pop(OWNER_VARIABLE, None)  # services have no use for it
    return found


def _owner_environment() -> dict[str, str]:
    """Return the same with the database owner's address, for a person at the terminal."""
    from infra.local.processes import owner_environment

    config, environment = read_config(os.environ), _environment()
    home = StateDirectory(config.home)
    return owner_environment(config, home, environment) if home.exists else dict(os.environ)


def _become(module: str, *arguments: str) -> NoReturn:
    os.execve(sys.executable, [sys.executable, "-m", module, *arguments], _environment())


def _end_on_signals() -> None:
    """Let SIGTERM and a closed terminal end the run as Ctrl-C does."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def _stay(home: StateDirectory) -> None:
    """Show the log until Ctrl-C or until somebody else ends the run; then leave no process."""
    from infra.local.down import down as end
    from infra.local.logs import follow_logs
    from infra.local.supervisor import Supervisor

    runs: Callable[[], bool] = lambda: Supervisor(home).pid() is not None  # noqa: E731
    try:
        typer.echo("Ctrl-C ends it. The log of all processes:")
        follow_logs(home, [], goes_on=runs)
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the second Ctrl-C of an impatient person
        typer.echo("\nEnding:")
        end(home)
    typer.echo("Ended; data stay.")


def _leave(message: str, code: int) -> NoReturn:
    typer.secho(message, fg=typer.colors.RED, err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()

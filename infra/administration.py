"""The groups of `penstock` for services and for administration. They import no package beyond
`typer` and `msgspec` before a command runs, so that a gateway's host needs no control plane."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from infra.command import (
    PASS_THROUGH,
    become,
    command_group,
    read_environment,
    require_extra,
    run_management_command,
)
from infra.local.config import LocalError
from infra.local.django import scheduler_arguments

NEEDS_CONTROL = "Needs penstock[control] and the environment of the control plane."

run = command_group(
    "Run one service here, configured by the environment. gateway, fleet and node need"
    " penstock[gateway]; control, worker and scheduler need penstock[control]."
)
credentials = command_group(
    "Issue the data plane's credentials; encrypt stored secrets anew. rotate-encryption needs"
    " penstock[control]."
)
gateways = command_group(
    "Administer gateways that are lost. release needs penstock[control] and its environment,"
    " ship-usage penstock[gateway]."
)
fleet_host = command_group("Look at a fleet's host. Needs penstock[gateway].")
operators = command_group(f"Administer operators. {NEEDS_CONTROL}")
audit = command_group(f"Verify the audit log. {NEEDS_CONTROL}")
billing = command_group(f"Check, close, archive and export the books. {NEEDS_CONTROL}")


@run.command()
def control() -> None:
    """Run the control plane: console, admin, management API, internal API."""
    become("control", "control.server")


@run.command()
def worker(
    queues: Annotated[
        list[str] | None, typer.Argument(help="books, general, outbox, long_jobs; all by default.")
    ] = None,
) -> None:
    """Run the worker: usage, invoices, emails, webhooks, exports."""
    become("control", "control.worker", *(queues or []))


@run.command()
def scheduler(
    schedule: Annotated[
        Path | None, typer.Option(help="A file that remembers what ran, across restarts.")
    ] = None,
) -> None:
    """Run the scheduler, which tells the workers what is due. Run exactly one."""
    become("control", *scheduler_arguments(schedule))


@run.command()
def gateway() -> None:
    """Run a gateway: the OpenAI-compatible API."""
    become("gateway", "serving.gateway")


@run.command()
def fleet() -> None:
    """Run the fleet, which starts and watches this host's engine replicas."""
    become("gateway", "serving.fleet")


@run.command()
def node() -> None:
    """Run a node: one engine and the proxy before it, as standard input says. Launchers do."""
    become("gateway", "serving.node")


@credentials.command()
def issue(
    name: Annotated[str, typer.Argument(help="The gateway: lowercase letters, digits, dashes.")],
    number: Annotated[int, typer.Option(min=1, help="One more than the previous credential.")] = 1,
) -> None:
    """Print a credential for a gateway, derived from PENSTOCK_INTERNAL_SECRET. It is valid at once,
    until PENSTOCK_INTERNAL_REVOKED names it or a later number."""
    from serving.contract.credential import ROOT_VARIABLE, ServiceIdentity
    from serving.contract.credential import issue as issue_credential

    root = read_environment().get(ROOT_VARIABLE)
    if not root:
        raise LocalError(f"{ROOT_VARIABLE} is not set, and no platform runs in this home folder")
    try:
        typer.echo(issue_credential(root, ServiceIdentity("gateway", name, number)))
    except ValueError as error:
        raise LocalError(f"{name!r} can't name a gateway: {error}") from error


@credentials.command("rotate-encryption", context_settings=PASS_THROUGH)
def rotate_encryption(context: typer.Context) -> None:
    """Encrypt stored secrets with the newest key.

    --dry-run counts them and changes nothing."""
    run_management_command(["rotate_encryption", *context.args])


@fleet_host.command("record-devices")
def record_devices() -> None:
    """Print what NVML says of this host's GPUs, and which could be given to a replica, as JSON.

    Run it on the host itself: it asks no fleet. It names processes that use GPUs."""
    require_extra("gateway")
    from serving.fleet.devices import read_gpus, record

    report = read_gpus(environ={})
    if report.problem:
        raise LocalError(report.problem)
    typer.echo(json.dumps(record(), indent=1))


@gateways.command(context_settings=PASS_THROUGH)
def release(context: typer.Context) -> None:
    """Release what a lost gateway's leases hold; `ship-usage` comes first, where its folder exists.

    Needs penstock[control] and its environment. Usage: ID --reason WORDS [--dry-run]"""
    run_management_command(["release_gateway", *context.args])


@gateways.command("ship-usage")
def ship_usage(
    folder: Annotated[Path, typer.Argument(help="The data folder of a gateway that is gone.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and send nothing.")] = False,
) -> None:
    """Send the usage that a lost gateway left in its folder; safe to repeat.

    The folder may be a copy on any host that reaches control. Needs penstock[gateway] and
    PENSTOCK_INTERNAL_API_URL; a credential is in the folder."""
    require_extra("gateway")
    from serving.contract.environment import ConfigError
    from serving.usage.orphaned_journals import NotShipped, ship_folder, unshipped

    try:
        if dry_run:
            left = unshipped(folder)
        else:
            left = asyncio.run(ship_folder(folder, read_environment()))
    except (NotShipped, ConfigError) as error:
        raise LocalError(str(error)) from error
    verb = "holds" if dry_run else "shipped:"
    typer.echo(f"{folder} {verb} {left.events:,} usage events, {left.leases:,} leases")


@operators.command("create-token", context_settings=PASS_THROUGH)
def create_token(context: typer.Context) -> None:
    """Create a token for the operators' API, and print its secret.

    Usage: EMAIL --name NAME --permission platform:read [--permission customers:write …]. The token
    acts as the operator with this address."""
    run_management_command(["create_operator_token", *context.args])


@audit.command(context_settings=PASS_THROUGH)
def verify(context: typer.Context) -> None:
    """Verify the hash chain and print its head.

    Usage: [--holds POSITION:DIGEST] [--json]. Keep the head elsewhere, and pass it to --holds
    later: then a chain that was cut off or made anew is found."""
    run_management_command(["verify_audit_log", *context.args])


@billing.command("check-integrity", context_settings=PASS_THROUGH)
def check_integrity(context: typer.Context) -> None:
    """Check entries, balances and holds.

    It names the rows that break a rule, and exits with 1 if there are any."""
    run_management_command(["check_integrity", *context.args])


@billing.command("close-month", context_settings=PASS_THROUGH)
def close_month(context: typer.Context) -> None:
    """Invoice a month that is over.

    Usage: --period 2026-11 [--organization ID] [--dry-run]"""
    run_management_command(["close_month", *context.args])


@billing.command("archive-usage", context_settings=PASS_THROUGH)
def archive_usage(context: typer.Context) -> None:
    """Move old usage into Parquet files.

    Usage: --before DATE [--dry-run]"""
    run_management_command(["archive", *context.args], as_owner=True)


@billing.command("rebuild-usage", context_settings=PASS_THROUGH)
def rebuild_usage(context: typer.Context) -> None:
    """Compute usage anew after a restore.

    It is computed from the events of open days."""
    run_management_command(["reconcile_followers", *context.args], as_owner=True)


@billing.command("export-focus", context_settings=PASS_THROUGH)
def export_focus(context: typer.Context) -> None:
    """Write usage and cost as FOCUS CSV.

    Usage: --from DAY --to DAY [--organization ID]. FOCUS is the FinOps Foundation's format."""
    run_management_command(["export_focus", *context.args])


@billing.command("stripe-check", context_settings=PASS_THROUGH)
def stripe_check(context: typer.Context) -> None:
    """Try a payment in a Stripe test account.

    It refuses live keys."""
    run_management_command(["stripe_check", *context.args])

"""`bad-days` and `changes`: what happens to an installation under load, by accident and by its
operators, and what clients see of it."""

import json
from collections.abc import Sequence
from pathlib import Path

from tests.long.parts import Part
from tests.long.parts.changes import CHANGES
from tests.long.parts.days import DAYS, Day, judge, live_through
from tests.long.parts.first_day import Customer, follow_page
from tests.long.parts.host import Host, wait_for
from tests.long.parts.installation import CONSOLE, Installation, timed
from tests.long.parts.load import TOKEN_SECONDS, running_load

ENGINE = {
    "slots": 128,
    "replicas_min": 2,
    "replicas_max": 2,
    "engine_arguments": ["--itl-seconds", str(TOKEN_SECONDS)],
}
"""The deployment under load: two replicas, since one of them is killed."""


def run_accidents(folder: Path) -> None:
    """Kill processes, and take servers away. Raises PartFailed."""
    run_days(folder, DAYS)


def run_changes(folder: Path) -> None:
    """Rotate secrets, move the database, upgrade and roll back. Raises PartFailed."""
    run_days(folder, CHANGES)


def run_days(folder: Path, days: Sequence[Day]) -> None:
    """Install, load, live through the days, and judge what clients saw. Raises PartFailed."""
    host = Host(folder.parent / "install")
    installation = Installation(host)
    installation.make()
    with installation.running():
        installation.set_up()
        customer = follow_page(installation)
        timed("two engines at the load's pace", lambda: set_pace(installation, customer))
        with running_load(installation, customer.api_key, "trial") as load:
            windows = live_through(installation, load, days)
        judge(installation, load, windows)
        print(installation.penstock("billing check-integrity").strip().splitlines()[-1], flush=True)


def set_pace(installation: Installation, customer: Customer) -> None:
    """Give the deployment its engines, and wait until they serve instead of those before."""
    url = f"{CONSOLE}/api/v1/admin/deployments/{customer.deployment}"
    installation.host.run(
        f"curl -sS --fail-with-body -X PATCH {url} -d @-"
        f" -H 'Authorization: Bearer {customer.operator_token}'"
        " -H 'Content-Type: application/json'",
        given=json.dumps(ENGINE),
    )
    pace = f"--itl-seconds {TOKEN_SECONDS}"
    wait_for(lambda: _engines(installation, pace) == _engines(installation) == 2, "two engines")


def _engines(installation: Installation, words: str = "") -> int:
    """Return how many engines run, or those with such words in their command."""
    processes = installation.host.run("systemd-cgls --full --no-pager -u penstock-fleet")
    engines = [line for line in processes.splitlines() if "serving.engine.simulated" in line]
    return sum(words in line for line in engines)


BAD_DAYS = Part(
    "bad-days", "processes killed, servers away, under load: what clients see", run_accidents
)
CHANGES_PART = Part(
    "changes", "secrets rotated, database moved, upgrade and back, under load", run_changes
)

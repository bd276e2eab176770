"""`install`: an operator's first day on a host of their own, from the wheel to a booked request."""

from pathlib import Path

from tests.long.parts import Part
from tests.long.parts.first_day import run_first_day
from tests.long.parts.host import Host
from tests.long.parts.installation import Installation, timed
from tests.long.parts.units import check_units


def run(folder: Path) -> None:
    """Install, follow the first day's page, send a request with the official client, and check the
    units at work. Raises PartFailed."""
    installation = Installation(Host(folder))
    installation.make()
    with installation.running():
        installation.set_up()
        timed("an operator's first day", lambda: run_first_day(installation))
        timed("the units at work", lambda: check_units(installation))


INSTALL = Part(
    "install", "the wheel on a host with its own PostgreSQL, Redis, nginx and systemd", run
)

"""`artefacts`: the files that operators copy, each tried by its own program."""

from pathlib import Path

from tests.long.parts import Part
from tests.long.parts.suite import run_suite

TESTS = "tests/infra/artefacts"


def run(folder: Path) -> None:
    """Run the tests one after another: several make an image, a network or a server. Raises
    PartFailed."""
    run_suite(folder, [TESTS], {}, markers="long", processes=0)


ARTEFACTS = Part("artefacts", f"{TESTS}: systemd, balancers, PostgreSQL, images, Compose", run)

"""docs/operate/settings.md says what every process reads from its environment, and nothing else."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from serving.fleet.config import TIMING_PREFIX, FleetTimings

pytestmark = pytest.mark.unit
ROOT = Path(__file__).parents[2]
READERS = (
    "serving/config.py",
    "serving/gateway/config.py",
    "serving/contract/credential.py",
    "serving/fleet/config.py",
    "platform/control/config.py",
)
NAME = re.compile(r"\b(?:PENSTOCK|STRIPE|OTEL|DATABASE|REDIS|EMAIL)_[A-Z_]*[A-Z]\b")
QUOTED = re.compile(rf'"({NAME.pattern})"')
FILE = "PENSTOCK_INTERNAL_CREDENTIAL_FILE"
"""Made of the other's name."""


def read() -> set[str]:
    """Return the names that the code of configurations holds in quotes, and the fleet's timings."""
    texts = [(ROOT / path).read_text() for path in READERS]
    names = {name for text in texts for name in QUOTED.findall(text)}
    timings = {TIMING_PREFIX + field.name.upper() for field in fields(FleetTimings)}
    return names | timings | {FILE}


def told() -> set[str]:
    """Return the names on the page; one that begins with dots has its fellow's beginning."""
    page = (ROOT / "docs/operate/settings.md").read_text()
    return set(NAME.findall(re.sub(r"`…_", f"`{TIMING_PREFIX}", page)))


def test_every_variable_that_is_read_is_on_the_page_and_no_other() -> None:
    assert told() == read()

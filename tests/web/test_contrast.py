"""Every ink on every paper it is set on has the contrast that WCAG calls AA, light and dark."""

import re
from itertools import product
from pathlib import Path

import pytest

import web

pytestmark = pytest.mark.unit

TOKENS = Path(web.__file__).parent / "static" / "console" / "tokens.css"
PAIR = re.compile(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")
COLOURS = {name: (light, dark) for name, light, dark in PAIR.findall(TOKENS.read_text())}
INKS = ["text", "text-soft", "text-faint", "accent", "good", "warn", "bad"]
METERS = ["ink-input", "ink-cached", "ink-output"]
PAPERS = ["paper", "paper-sunk", "paper-raised"]
SPECIAL = [("on-accent", "accent"), ("on-bad", "bad"), ("accent", "accent-wash")]
WASHES = [(ink, f"{ink}-wash") for ink in ("good", "warn", "bad")]
TEXT_RATIO_MIN = 4.5
EDGE_RATIO_MIN = 3.0


def luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ratio(ink: str, paper: str, theme: int) -> float:
    lights = [luminance(COLOURS[name][theme]) for name in (ink, paper)]
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("ink", "paper"), [*product(INKS + METERS, PAPERS), *SPECIAL, *WASHES])
def test_words_can_be_read(ink: str, paper: str, theme: int) -> None:
    assert ratio(ink, paper, theme) >= TEXT_RATIO_MIN


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("edge", "paper"), [*product(["line-strong", "focus"], PAPERS)])
def test_fields_and_focus_can_be_seen(edge: str, paper: str, theme: int) -> None:
    assert ratio(edge, paper, theme) >= EDGE_RATIO_MIN

"""The quality report that lies beside each variant's weights, and what makes one valid."""

import json
from collections import Counter
from math import sqrt
from pathlib import Path
from typing import Any

SCHEMA = 1
FILE_NAME = "quality.json"
PARENTS: dict[str, str | None] = {"bf16": None, "int8": "bf16", "int4": "bf16"}
KEYS = {
    "schema", "variant", "parent", "evaluation_set", "accuracy", "perplexity", "size_bytes",
    "output_tokens_per_second", "streams", "engine", "hardware", "measured_at", "command",
}  # fmt: skip
_Z95 = 1.959964


def wilson(right: int, asked: int) -> tuple[float, float]:
    """The 95 % interval of a share, good near 0 and 1 too (Wilson, 1927)."""
    if asked == 0:
        return 0.0, 1.0
    share, z2 = right / asked, _Z95**2
    middle = share + z2 / (2 * asked)
    spread = _Z95 * sqrt(share * (1 - share) / asked + z2 / (4 * asked**2))
    low, high = (middle - spread) / (1 + z2 / asked), (middle + spread) / (1 + z2 / asked)
    return round(max(low, 0.0), 4), round(min(high, 1.0), 4)


def score(right: int, asked: int) -> dict[str, float]:
    low, high = wilson(right, asked)
    share = round(right / asked, 4) if asked else 0.0
    return {"right": right, "asked": asked, "share": share, "low": low, "high": high}


def accuracy(verdicts: list[tuple[str, bool]]) -> dict[str, Any]:
    """From (skill, was right) pairs: the score over all and by skill."""
    asked = Counter(skill for skill, _ in verdicts)
    right = Counter(skill for skill, good in verdicts if good)
    return {
        "overall": score(right.total(), asked.total()),
        "by_skill": {skill: score(right[skill], asked[skill]) for skill in sorted(asked)},
    }


def problems(report: dict[str, Any]) -> list[str]:
    """What is wrong with a report; an empty list means valid."""
    if set(report) != KEYS:
        return [f"keys differ: {sorted(set(report) ^ KEYS)}"]
    found = []
    if report["schema"] != SCHEMA:
        found.append(f"schema is {report['schema']}, wanted {SCHEMA}")
    if PARENTS.get(report["variant"], "?") != report["parent"]:
        found.append(f"parent of {report['variant']} is {report['parent']}")
    overall, by_skill = report["accuracy"]["overall"], report["accuracy"]["by_skill"]
    for name, entry in [("overall", overall), *by_skill.items()]:
        if entry != score(entry["right"], entry["asked"]):
            found.append(f"figures of {name} do not agree with each other")
    for part in ("right", "asked"):
        if overall[part] != sum(entry[part] for entry in by_skill.values()):
            found.append(f"the skills do not add up to the overall {part}")
    if overall["asked"] != report["evaluation_set"]["questions"]:
        found.append("not every question was asked")
    return found


def read_report(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    return report


def write_report(path: Path, report: dict[str, Any]) -> None:
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")

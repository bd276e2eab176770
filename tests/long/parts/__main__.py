"""`python -m tests.long.parts [NAME …]`: run the named parts of `make test-long`, or all."""

import argparse
import shutil
import sys
import time

from infra.local.config import ROOT
from tests.long.parts import PartFailed
from tests.long.parts.artefacts import ARTEFACTS
from tests.long.parts.bad_days import BAD_DAYS, CHANGES_PART
from tests.long.parts.fuzz import FUZZ
from tests.long.parts.hosts import HOSTS
from tests.long.parts.install import INSTALL
from tests.long.parts.postgres_15 import POSTGRES_15
from tests.long.parts.redis_servers import REDIS_6, VALKEY

PARTS = {
    part.name: part
    for part in (
        *(POSTGRES_15, REDIS_6, VALKEY),
        *(INSTALL, BAD_DAYS, CHANGES_PART),
        *(HOSTS, FUZZ, ARTEFACTS),
    )
}
FOLDERS = ROOT / "test-results" / "parts"
"""Where parts keep what lets them go on."""


def main() -> int:
    """Run parts one after another; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.long.parts", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part; all of them by default")
    parser.add_argument("--list", action="store_true", help="list the parts and run none")
    parser.add_argument("--again", action="store_true", help="forget what earlier runs have passed")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in PARTS]:
        parser.error(f"{unknown[0]!r} is no part; wanted {', '.join(PARTS)}")
    if options.list:
        for part in PARTS.values():
            print(f"{part.name:<14} {part.summary}")
        return 0
    results = [_run(name, again=options.again) for name in options.names or PARTS]
    print("\n".join(["", *(words for _, words in results)]))
    return 0 if all(is_passed for is_passed, _ in results) else 1


def _run(name: str, *, again: bool) -> tuple[bool, str]:
    """Run a part; return whether it passed, and a line that says so."""
    folder, began = FOLDERS / name, time.monotonic()
    if again:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"\n{name}: {PARTS[name].summary}", flush=True)
    try:
        PARTS[name].run(folder)
    except PartFailed as error:
        return False, f"{name}: failed: {error}"
    return True, f"{name}: passed in {time.monotonic() - began:.0f} s"


if __name__ == "__main__":
    sys.exit(main())

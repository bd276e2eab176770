"""`python -m tests.long.fuzz TARGET [libFuzzer's options]`; see the package for the environment."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris

with atheris.instrument_imports(include=["serving", "msgspec", "httptools"]):
    from tests.long.fuzz.targets import SEEDS, TARGETS


def main(arguments: list[str]) -> None:
    """Fuzz one target until its time is over; what breaks it is left in a file here."""
    if len(arguments) < 2 or arguments[1] not in TARGETS:
        raise SystemExit(f"usage: python -m tests.long.fuzz {{{','.join(TARGETS)}}} [options]")
    with TemporaryDirectory(prefix="penstock-fuzz-") as corpus:
        for number, seed in enumerate(SEEDS[arguments[1]]):
            Path(corpus, str(number)).write_bytes(seed)
        atheris.Setup([arguments[0], *arguments[2:], corpus], TARGETS[arguments[1]])
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)

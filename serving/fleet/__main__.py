"""`python -m serving.fleet`: the fleet as a process of its own."""

import argparse

import uvloop

from serving import telemetry
from serving.file_lock import FileLocked
from serving.fleet.config import read_config
from serving.fleet.run import run


def main() -> None:
    """Run until SIGTERM; exit code 2 for a bad setting, 1 for a port or directory taken."""
    grammar = argparse.ArgumentParser(prog="python -m serving.fleet", description=__doc__)
    grammar.epilog = "Configured by the environment; see serving/fleet/config.py."
    grammar.parse_args()
    try:
        config = read_config()
    except ValueError as error:
        grammar.error(str(error))
    telemetry.configure(config.log_format)
    try:
        uvloop.run(run(config))
    except FileLocked as error:
        raise SystemExit(f"fleet: another one runs on {config.directory}: {error}") from error
    except OSError as error:
        raise SystemExit(f"fleet: {config.host}:{config.port}: {error}") from error


if __name__ == "__main__":
    main()

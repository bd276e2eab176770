"""`python -m serving.fleet`: the fleet as a process of its own."""

import argparse

import structlog
import uvloop

from serving.fleet.config import FleetConfig, read_config
from serving.fleet.run import run
from serving.fleet.store import DirectoryTaken


def main() -> None:
    """Run until SIGTERM; exit code 2 for a bad setting, 1 for a port or directory taken."""
    grammar = argparse.ArgumentParser(prog="python -m serving.fleet", description=__doc__)
    grammar.epilog = "Configured by the environment; see serving/fleet/config.py."
    grammar.parse_args()
    try:
        config = read_config()
    except ValueError as error:
        grammar.error(str(error))
    _set_up_log(config)
    try:
        uvloop.run(run(config))
    except DirectoryTaken as error:
        raise SystemExit(f"fleet: {error}") from error
    except OSError as error:
        raise SystemExit(f"fleet: {config.host}:{config.port}: {error}") from error


def _set_up_log(config: FleetConfig) -> None:
    shown = structlog.processors.JSONRenderer()
    plain = structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            shown if config.log_format == "json" else plain,
        ]
    )


if __name__ == "__main__":
    main()

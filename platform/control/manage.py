"""`python -m control.manage`: Django's command line for the control plane."""

import os
import sys

from django.core.management import execute_from_command_line

from serving.contract.environment import ConfigError


def main() -> None:
    """Run one management command; an invalid configuration is one line, not a traceback."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")
    try:
        execute_from_command_line(["penstock django", *sys.argv[1:]])
    except ConfigError as error:
        sys.exit(f"penstock: {error}")


if __name__ == "__main__":
    main()

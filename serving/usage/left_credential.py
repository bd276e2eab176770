"""The credential that a gateway leaves in its folder: control listens to nobody else who speaks for
it, so that whoever ships its journal once it is dead shows this one."""

import os
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

NAME = "credential"


def leave(folder: Path, credential: str) -> None:
    """Write it for our owner alone to read. Where that fails we ship our journal ourselves."""
    draft = folder / f"{NAME}.new"
    try:
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(credential)
        draft.replace(folder / NAME)
    except OSError as error:
        log.warning("credential_not_left", folder=folder.name, error=str(error))


def found(folder: Path) -> str | None:
    """Return what was left; None where nothing was, as by gateways of before."""
    try:
        return (folder / NAME).read_text("ascii").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        log.warning("credential_unreadable", folder=folder.name, error=str(error))
        return None

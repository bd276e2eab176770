"""The static files of console and admin, with hashed names and compressed, in
`PENSTOCK_STATIC_DIR`: control collects them when it starts, and nobody else has to."""

import fcntl
import hashlib
from collections.abc import Iterator
from pathlib import Path

from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command

STAMP = ".collected"


def collect(folder: Path) -> bool:
    """Fill the folder with this version's files; return whether it lacked any.

    Files of other versions stay, since pages of processes that still run it link to them. Control
    processes of one host may share the folder: one collects, the others wait for it. Raises OSError
    for a folder that cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, digest = folder / STAMP, _digest()
        if stamp.exists() and stamp.read_text() == digest:
            return False
        call_command("collectstatic", interactive=False, verbosity=0)
        stamp.write_text(digest)
    return True


def is_collected(folder: Path | None) -> bool:
    """Return whether the folder has collected files; without a folder, none are needed."""
    return folder is None or (folder / STAMP).exists()


def _digest() -> str:
    """Return a digest of the names, sizes and times of all source files."""
    return hashlib.sha256("\n".join(sorted(_source_files())).encode()).hexdigest()


def _source_files() -> Iterator[str]:
    for finder in get_finders():
        for name, storage in finder.list([]):
            status = Path(storage.path(name)).stat()
            yield f"{name} {status.st_size} {status.st_mtime_ns}"

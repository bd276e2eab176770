"""The state file of gateways before SQLite: a page and its digest, read once and then removed, so
that a gateway that is upgraded while control is away knows its keys."""

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from serving.contract.codec import ContractError, decode
from serving.contract.feed import Page

log = structlog.get_logger(__name__)


class Written(msgspec.Struct, frozen=True):
    """What the file holds after its digest; `records` is the writer's fingerprint of its kinds."""

    schema: int
    page: Page
    records: str = ""


@dataclass(frozen=True, slots=True)
class OldState:
    """The file that lay where `path` lies now."""

    path: Path

    def read(self) -> Written | None:
        """Return what the file holds; None, and a log line, when there is nothing whole."""
        try:
            digest, _, data = self._file.read_bytes().partition(b"\n")
            if hashlib.sha256(data).hexdigest().encode() == digest:
                return decode(data, Written)
            log.error("old_state_damaged", path=self._file.name)
        except FileNotFoundError:
            pass
        except (OSError, ContractError) as error:
            log.error("old_state_unreadable", path=self._file.name, error=str(error))
        return None

    def remove(self) -> None:
        """Leave nothing that could be believed later."""
        for file in (self._file, self.path.with_suffix(".new")):
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)

    @property
    def _file(self) -> Path:
        return self.path.with_suffix(".state")

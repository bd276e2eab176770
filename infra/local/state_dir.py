"""The home folder of one local run: data, logs, secrets and what is running in it."""

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from serving.contract.credential import ROOT_VARIABLE, Role, ServiceIdentity, issue

SECRETS = (
    "PENSTOCK_SECRET_KEY",
    ROOT_VARIABLE,
    "PENSTOCK_KEY_PEPPER",
    "PENSTOCK_ENCRYPTION_KEY",
    "PENSTOCK_SALT_SECRET",
    "PENSTOCK_PLAYGROUND_SECRET",
    "POSTGRES_PASSWORD",
    "POSTGRES_OWNER_PASSWORD",
    "POSTGRES_APP_PASSWORD",
    "REDIS_PASSWORD",
)


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """The folder of one run; all of it is private to the user."""

    path: Path

    @property
    def data(self) -> Path:
        """The part that survives: the database, the journal, the feed state."""
        return self.path / "data"

    @property
    def redis_data(self) -> Path:
        """The working folder of the embedded Redis."""
        return self.data / "redis"

    @property
    def logs(self) -> Path:
        """One file per process."""
        return self.path / "logs"

    @property
    def run(self) -> Path:
        """The part that only a running stack has: the supervisor's configuration and sockets."""
        return self.path / "run"

    @property
    def credentials_file(self) -> Path:
        """Addresses, logins and the API key, for people and scripts."""
        return self.path / "credentials.json"

    @property
    def secrets_file(self) -> Path:
        """The secrets that processes authenticate with."""
        return self.path / "secrets.json"

    @property
    def ports_file(self) -> Path:
        """The ports that were used last, for `status`, `down` and the next start."""
        return self.path / "ports.json"

    @property
    def exists(self) -> bool:
        """Whether a run was ever started here."""
        return self.secrets_file.exists()

    def make(self) -> None:
        """Make the folders, open to their owner only."""
        for folder in (self.path, self.data, self.logs, self.run):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def secrets(self) -> dict[str, str]:
        """Return the secrets; those that are missing are made once and kept."""
        known = read_json(self.secrets_file)
        missing = {name: secrets.token_hex(32) for name in SECRETS if name not in known}
        if missing:
            known |= missing
            write_private(self.secrets_file, known)
        return known

    def credential(self, role: Role, name: str) -> str:
        """Return the credential of a process of this run."""
        return issue(self.secrets()[ROOT_VARIABLE], ServiceIdentity(role, name))

    def credential_file(self, gateway: str) -> Path:
        """The file of a gateway's credential, which is all that it may know of ours."""
        return self.path / f"{gateway}.credential"

    def write_credential(self, gateway: str) -> None:
        """Write a gateway's credential to its file."""
        replace_private(self.credential_file(gateway), self.credential("gateway", gateway))

    def remember_port_base(self, base: int) -> None:
        """Keep the ports of this run for later commands."""
        write_private(self.ports_file, {"base": str(base)})

    def port_base(self) -> str | None:
        """Return the ports of the last run, None before the first."""
        return read_json(self.ports_file).get("base")

    def log(self, name: str) -> Path:
        """Return the log of one process."""
        return self.logs / f"{name}.log"


def read_json(path: Path) -> dict[str, str]:
    """Return a flat JSON object from a file, empty where there is none."""
    if not path.exists():
        return {}
    content: dict[str, str] = json.loads(path.read_text())
    return content


def write_private(path: Path, content: object) -> None:
    """Replace a file by JSON that only its owner may read, whole or not at all."""
    replace_private(path, json.dumps(content, indent=2))


def replace_private(path: Path, text: str) -> None:
    """Replace a file by a text that only its owner may read, whole or not at all."""
    draft = path.with_suffix(".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{text}\n")
    draft.replace(path)

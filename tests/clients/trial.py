"""One client's trial: its script is run, and tells a line of JSON per feature."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.clients.client import Client, Feature
from tests.clients.environment import Environment, NoRuntime

SCRIPTS = Path(__file__).parent / "scripts"
SECONDS_MAX = 240

Outcome = Literal["works", "fails", "not asked"]


@dataclass(frozen=True)
class Target:
    """What is called: its address ending in /v1, a key, a model, where its tokenizer is and, if one
    is offered, a model for embeddings."""

    base_url: str
    api_key: str
    model: str
    tokenizer: str
    embedding_model: str | None = None

    @property
    def variables(self) -> dict[str, str]:
        """The target as a script is told."""
        told = {
            "BASE_URL": self.base_url,
            "API_KEY": self.api_key,
            "MODEL": self.model,
            "TOKENIZER": self.tokenizer,
        }
        return told | ({"EMBEDDING_MODEL": self.embedding_model} if self.embedding_model else {})


@dataclass(frozen=True)
class Verdict:
    """What came of one feature, and what the client said where that matters."""

    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True)
class Trial:
    """One row of the table; `absence` is why there was none."""

    client: Client
    version: str = ""
    verdicts: Mapping[Feature, Verdict] = field(default_factory=dict)
    absence: str = ""

    @property
    def failures(self) -> dict[Feature, Verdict]:
        """What must work and does not."""
        return {name: each for name, each in self.verdicts.items() if each.outcome == "fails"}


def run_trial(client: Client, target: Target) -> Trial:
    """Install the client and run its script against the target."""
    environment = Environment(client)
    try:
        environment.make()
    except NoRuntime as absence:
        return Trial(client, absence=str(absence))
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or "").strip()[-300:]
        return Trial(client, verdicts=_all_fail(client, f"not installed: {reason}"))
    variables = environment.variables | target.variables
    told = _told(environment.command(SCRIPTS / client.script), variables)
    verdicts = {name: _verdict(name, told, target) for name in client.features}
    return Trial(client, environment.version(), verdicts)


def _verdict(name: Feature, told: Mapping[str, Verdict], target: Target) -> Verdict:
    if name == "embeddings" and target.embedding_model is None:
        return Verdict("not asked", "no model for embeddings is offered")
    silent = Verdict("fails", told["script"].detail if "script" in told else "nothing was said")
    return told.get(name, silent)


def _told(command: list[str], variables: Mapping[str, str]) -> dict[str, Verdict]:
    """Return the verdicts of a script, that of `script` being its own end where it broke."""
    plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    try:
        done = subprocess.run(
            command,
            env={**plain, **variables},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"script": Verdict("fails", f"did not end within {SECONDS_MAX} s")}
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"feature"')]
    told = {line["feature"]: Verdict(line["outcome"], line["detail"]) for line in lines}
    if done.returncode:
        told["script"] = Verdict("fails", done.stderr.strip()[-400:])
    return told


def _all_fail(client: Client, detail: str) -> dict[Feature, Verdict]:
    return {name: Verdict("fails", detail) for name in client.features}

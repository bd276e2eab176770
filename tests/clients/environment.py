"""Environments made of the package index, one a client, kept under `.penstock/clients`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from infra.local.config import ROOT
from infra.local.setup import pip_configuration
from tests.clients.client import Client

FOLDER = ROOT / ".penstock" / "clients"
UV = Path(sys.executable).with_name("uv")
INSTALL_SECONDS_MAX = 600


class NoRuntime(Exception):
    """What the client runs on is not on this machine."""


class Environment:
    """Where one client is installed: the newest release there is."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.folder = FOLDER / client.environment

    def make(self) -> None:
        """Install the client's packages anew where they changed. Raises NoRuntime or
        CalledProcessError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        match self._client.runtime:
            case "python":
                self._make_python()
            case "node":
                self._make_node()
            case "java":
                if shutil.which("java") is None or shutil.which("javac") is None:
                    raise NoRuntime("no JDK here")

    def command(self, script: Path) -> list[str]:
        """Return what runs a script in it."""
        match self._client.runtime:
            case "python":
                return [str(self._python), str(script)]
            case "node":
                # Node looks for packages beside the script, not in the folder it is started in.
                for beside in script.parent.glob("*.mjs"):
                    shutil.copyfile(beside, self.folder / beside.name)
                return ["node", str(self.folder / script.name)]
            case "java":
                return ["java", str(script)]
            case "project":
                return [sys.executable, str(script)]

    @property
    def variables(self) -> dict[str, str]:
        """What a script must be told to find its modules."""
        is_project = self._client.runtime == "project"
        return {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}"} if is_project else {}

    def version(self) -> str:
        """Return the client's version, as its environment has it."""
        package = self._client.packages[0]
        match self._client.runtime:
            case "node":
                manifest = self.folder / "node_modules" / package / "package.json"
                return str(json.loads(manifest.read_text())["version"])
            case "python":
                return self._python_version(self._python, package)
            case "java":
                return _run(["java", "--version"]).split()[1]
            case "project":
                return self._python_version(Path(sys.executable), package)

    @property
    def _python(self) -> Path:
        return self.folder / "bin" / "python"

    def _python_version(self, python: Path, package: str) -> str:
        ask = f"from importlib.metadata import version; print(version({package!r}))"
        return _run([str(python), "-c", ask]).strip()

    def _make_python(self) -> None:
        environment = {**os.environ, **pip_configuration()}
        if not self._python.exists():
            _run([str(UV), "venv", "--quiet", "--python", sys.executable, str(self.folder)])
        install = [str(UV), "pip", "install", "--quiet", "--upgrade"]
        _run([*install, "--python", str(self._python), *self._client.packages], environment)

    def _make_node(self) -> None:
        if shutil.which("node") is None or shutil.which("npm") is None:
            raise NoRuntime("no Node here")
        manifest = {"name": "client", "private": True, "type": "module"}
        (self.folder / "package.json").write_text(json.dumps(manifest))
        _run(["npm", "install", "--silent", "--prefix", str(self.folder), *self._client.packages])


def _run(command: list[str], environment: dict[str, str] | None = None) -> str:
    """Return what a command says. Raises CalledProcessError with what it complained of."""
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=True,
    )
    return done.stdout

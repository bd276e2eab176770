"""A Python client that `openapi-python-client` makes of an OpenAPI document. The generator lives in
an environment of its own, since what it needs is older than what the project does."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from infra.local.setup import pip_configuration

GENERATOR = "openapi-python-client==0.29.1"
PACKAGE = "penstock_api"
UV = Path(sys.executable).with_name("uv")


class GeneratedClient:
    """The generated package, imported and never touched. `left_out` is what the generator said it
    could not make."""

    def __init__(self, folder: Path, left_out: list[str]) -> None:
        self._folder, self.left_out = folder, left_out

    def signed_in(self, address: str, secret: str) -> Any:
        """Return its client, which calls with an API key and raises at what was not told."""
        module = importlib.import_module(f"{PACKAGE}.client")
        return module.AuthenticatedClient(
            base_url=address, token=secret, raise_on_unexpected_status=True
        )

    def operation(self, name: str) -> Callable[..., Any]:
        """Return the function of an operation, by its id."""
        [found] = (self._folder / PACKAGE / "api").glob(f"*/{name}.py")
        module = importlib.import_module(f"{PACKAGE}.api.{found.parent.name}.{name}")
        return module.sync_detailed  # type: ignore[no-any-return]


@contextmanager
def generated(document: Mapping[str, Any], folder: Path) -> Iterator[GeneratedClient]:
    """Generate a client in a folder and let it be imported."""
    (folder / "openapi.json").write_text(json.dumps(document))
    (folder / "config.yml").write_text("post_hooks: []\n")
    command = [str(_environment(folder / "generator") / "openapi-python-client"), "generate"]
    command += ["--path", "openapi.json", "--config", "config.yml"]
    said = _run([*command, "--meta", "none", "--output-path", PACKAGE], folder)
    left_out = [line for line in said.splitlines() if line.startswith("WARNING parsing")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield GeneratedClient(folder, left_out)
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


def untold(value: Any) -> list[str]:
    """Return the fields that an answer had and the document has not."""
    if isinstance(value, list):
        return [name for each in value for name in untold(each)]
    if not hasattr(value, "additional_properties"):
        return []
    names = [field.name for field in attrs.fields(type(value))]
    inner = [getattr(value, name) for name in names if name != "additional_properties"]
    return [*value.additional_properties, *untold(inner)]


def _environment(folder: Path) -> Path:
    """Make the generator's environment; return where its commands are."""
    variables = {**os.environ, **pip_configuration()}
    _run([str(UV), "venv", "--quiet", "--python", sys.executable, str(folder)], folder.parent)
    install = [str(UV), "pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
    _run([*install, GENERATOR], folder.parent, variables)
    return folder / "bin"


def _run(command: list[str], folder: Path, variables: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

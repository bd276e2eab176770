"""A process's configuration: read once at its edge, typed, checked; a bad value is named."""

from pathlib import Path

from serving.contract.credential import ServiceIdentity
from serving.contract.environment import (
    ConfigError,
    Environment,
    text,
)


def credential(environ: Environment, name: str) -> str:
    """Return our credential, from a variable or from the file that `{name}_FILE` names. Raises
    ConfigError, which does not repeat it."""
    value = environ.get(name)
    if not value:
        path = Path(text(environ, f"{name}_FILE"))
        try:
            value = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name}_FILE is {str(path)!r}, which can't be read") from error
    try:
        ServiceIdentity.read(value.rpartition(".")[0])
    except ValueError as error:
        wanted = "what `penstock credentials issue` prints"
        raise ConfigError(f"{name} is no credential; wanted {wanted}") from error
    return value

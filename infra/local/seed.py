"""The first operator, organization, API key, model and deployment, made by the control plane."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from infra.local.config import LocalConfig, StartFailed
from infra.local.django import run_module
from infra.local.state_dir import StateDirectory, write_private

OWNER_EMAIL = "owner@penstock.localhost"
OPERATOR_EMAIL = "operator@penstock.localhost"


@dataclass(frozen=True, slots=True)
class DemoLogin:
    """A person who can sign in."""

    email: str
    password: str


@dataclass(frozen=True, slots=True)
class Credentials:
    """The content of `credentials.json`."""

    api_base: str
    api_key: str
    console_url: str
    admin_url: str
    owner: DemoLogin
    operator: DemoLogin


@dataclass(frozen=True, slots=True)
class Seeded:
    """The things that a start finds or makes: credentials, the id of the chat model's deployment
    (None if an operator has stopped it), and the public id of each deployment's model."""

    credentials: Credentials
    deployment_id: str | None
    models: dict[str, str]


def read_credentials(home: StateDirectory) -> Credentials | None:
    """Return the credentials of an earlier start, if there was one."""
    if not home.credentials_file.exists():
        return None
    content = json.loads(home.credentials_file.read_text())
    content |= {name: DemoLogin(**content[name]) for name in ("owner", "operator")}
    return Credentials(**content)


def seed(
    config: LocalConfig,
    home: StateDirectory,
    environment: Mapping[str, str],
    *,
    embedder_runs: bool,
) -> Seeded:
    """Seed the platform and write the credentials; both may be repeated. Raises StartFailed."""
    known = read_credentials(home)
    owner = known.owner if known else DemoLogin(OWNER_EMAIL, secrets.token_urlsafe(12))
    operator = known.operator if known else DemoLogin(OPERATOR_EMAIL, secrets.token_urlsafe(12))
    answer = _seed(config, environment, owner, operator, _embedder(config, embedder_runs))
    credentials = Credentials(
        api_base=config.api_base,
        api_key=answer["api_key"] or (known.api_key if known else ""),
        console_url=config.console_url,
        admin_url=f"{config.console_url}/admin/",
        owner=owner,
        operator=operator,
    )
    write_private(home.credentials_file, asdict(credentials))
    return Seeded(credentials, answer["deployment_id"], answer["models"])


def _seed(
    config: LocalConfig,
    environment: Mapping[str, str],
    owner: DemoLogin,
    operator: DemoLogin,
    embedder: Sequence[str],
) -> dict[str, Any]:
    passwords = {
        "PENSTOCK_SEED_OWNER_PASSWORD": owner.password,
        "PENSTOCK_SEED_OPERATOR_PASSWORD": operator.password,
    }
    output = run_module(
        {**environment, **passwords},
        "infra.demo",
        *("--weights", config.weights, "--model-id", config.model_id),
        *embedder,
        *("--engine", config.engine),
        *("--owner-email", owner.email, "--operator-email", operator.email),
    )
    try:
        answer: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise StartFailed(f"infra.demo answered {output!r}; wanted one JSON object") from error
    return answer


def _embedder(config: LocalConfig, runs: bool) -> tuple[str, ...]:
    """Return what is said of the model for embeddings, if there is one."""
    if config.embedder_weights is None:
        return ()
    return (
        *("--embedding-weights", config.embedder_weights),
        *("--embedding-model-id", config.embedder_id),
        *("--embedding-replicas", "1" if runs else "0"),
    )

"""`python -m infra.demo`: seeds a running platform with its first operator, organization, API key,
models and prices; prints one JSON object.

It holds organization_id, project_id, api_key (null if there was one), deployment_id (of the model
that generates; null if it is stopped) and models (the public id of each deployment's model).
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import django

PEOPLE = ("owner", "operator")


def main(arguments: Sequence[str] | None = None) -> None:
    """Seed as the arguments say, or exit with a message that says what is wrong."""
    parser = _parser()
    options = parser.parse_args(arguments)
    from control.errors import ServiceError

    try:
        sys.stdout.write(json.dumps(seed(options)) + "\n")
    except (ServiceError, ValueError) as error:
        parser.error(str(error))


def seed(options: argparse.Namespace) -> dict[str, Any]:
    """Make what is missing. Raises ServiceError, and ValueError for a missing password."""
    from control.permissions import Actor
    from infra.demo.accounts import seed_demo_tenant, seed_operator
    from infra.demo.catalog import seed_model

    actor = Actor.for_system("seed_platform")
    models = _models(options)
    seed_operator(*_login("operator", options))
    tenant = seed_demo_tenant(actor, *_login("owner", options))
    deployments = [seed_model(actor, engine=options.engine, **each) for each in models]
    public_ids = {
        made.id: each["public_id"] for made, each in zip(deployments, models, strict=True)
    }
    deployment_id = deployments[0].id if deployments[0].replicas_min else None
    return asdict(tenant) | {"deployment_id": deployment_id, "models": public_ids}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="infra.demo",
        description="Fill a fresh platform; may be repeated. Prints one JSON object.",
        epilog="Passwords are better given as PENSTOCK_SEED_OWNER_PASSWORD and …_OPERATOR_PASSWORD:"
        " other users of the machine can read a process's arguments.",
    )
    parser.add_argument("--weights", required=True, help="a folder or a Hugging Face id")
    parser.add_argument("--model-id", required=True, help="what customers name")
    parser.add_argument("--embedding-weights", help="the same of a model for embeddings")
    parser.add_argument("--embedding-model-id", default="embeddings")
    parser.add_argument("--embedding-replicas", type=int, default=1)
    parser.add_argument("--engine", choices=("vllm", "simulated"), default="vllm")
    for person in PEOPLE:
        parser.add_argument(f"--{person}-email", default=f"{person}@penstock.localhost")
        parser.add_argument(f"--{person}-password")
    return parser


def _models(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what to make models of, the one that generates first."""
    from control.catalog.models import Task
    from infra.demo.weights import find_weights

    models: list[dict[str, Any]] = [
        {"public_id": options.model_id, "weights": find_weights(options.weights)}
    ]
    if options.embedding_weights:
        models.append(
            {
                "public_id": options.embedding_model_id,
                "weights": find_weights(options.embedding_weights),
                "task": Task.EMBED,
                "replicas": options.embedding_replicas,
            }
        )
    return models


def _login(person: str, options: argparse.Namespace) -> tuple[str, str]:
    """Return an address and its password."""
    variable = f"PENSTOCK_SEED_{person.upper()}_PASSWORD"
    password = getattr(options, f"{person}_password") or os.environ.get(variable)
    if not password:
        raise ValueError(f"{variable} is not set, nor --{person}-password given.")
    return getattr(options, f"{person}_email"), password


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")
    django.setup()
    main()

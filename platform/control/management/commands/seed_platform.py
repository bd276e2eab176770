"""`penstock manage seed_platform`: create the first operator, organization, API key, model and
prices."""

import json
import os
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from control.catalog.models import Task
from control.errors import ServiceError
from control.permissions import Actor
from control.seeding.catalog import seed_model
from control.seeding.people import Login, seed_demo_tenant, seed_operator
from control.seeding.weights import find_weights

PEOPLE = ("owner", "operator")


class Command(BaseCommand):
    """Prints one JSON object: organization_id, project_id, api_key (null if there was one already)
    and deployment_id (of the generating model; null if it is stopped)."""

    help = "Fill a fresh platform; may be repeated. Prints one JSON object."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options.

        Pass passwords as PENSTOCK_SEED_OWNER_PASSWORD and …_OPERATOR_PASSWORD instead: other
        processes can read the arguments of this one.
        """
        parser.add_argument("--weights", required=True, help="a folder or a Hugging Face id")
        parser.add_argument("--model-id", required=True, help="what customers name")
        parser.add_argument("--embedding-weights", help="the same of a model for embeddings")
        parser.add_argument("--embedding-model-id", default="embeddings")
        parser.add_argument("--embedding-replicas", type=int, default=1)
        parser.add_argument("--engine", choices=("vllm", "simulated"), default="vllm")
        for person in PEOPLE:
            parser.add_argument(f"--{person}-email", default=f"{person}@penstock.localhost")
            parser.add_argument(f"--{person}-password")

    def handle(self, *args: Any, **options: Any) -> None:
        """Seed the platform and print the ids and the API key."""
        actor = Actor.for_system("seed_platform")
        try:
            models = _models(options)
            seed_operator(_login("operator", options))
            tenant = seed_demo_tenant(actor, _login("owner", options))
            deployments = [seed_model(actor, engine=options["engine"], **each) for each in models]
        except ServiceError as error:
            raise CommandError(error.message) from error
        deployment_id = deployments[0].id if deployments[0].replicas_min else None
        self.stdout.write(json.dumps(asdict(tenant) | {"deployment_id": deployment_id}))


def _models(options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return `seed_model`'s arguments for each model, the generating one first."""
    location = options["weights"]
    models = [{"public_id": options["model_id"], "weights": find_weights(location)}]
    if location := options["embedding_weights"]:
        public_id = options["embedding_model_id"]
        weights = find_weights(location)
        embedder = {"public_id": public_id, "weights": weights, "task": Task.EMBED}
        models.append(embedder | {"replicas": options["embedding_replicas"]})
    return models


def _login(person: str, options: dict[str, Any]) -> Login:
    variable = f"PENSTOCK_SEED_{person.upper()}_PASSWORD"
    password = options[f"{person}_password"] or os.environ.get(variable)
    if not password:
        raise CommandError(f"{variable} is not set, nor --{person}-password given.")
    return Login(options[f"{person}_email"], password)

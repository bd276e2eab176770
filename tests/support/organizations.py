"""Organizations with people and keys, made by the services that make them in earnest."""

from dataclasses import dataclass
from typing import Any

from django.test import Client

from control.actor import Actor, system
from control.catalog import services as catalog
from control.catalog.models import Deployment, Model, Variant
from control.keys.models import ApiKey
from control.keys.services import mint_key
from control.tenants import selectors, services
from control.tenants.models import Membership, Organization, Project, Role, User
from control.tenants.permissions import member

OPERATOR = system("tests")


@dataclass(frozen=True)
class House:
    """An organization, its owner and its first project."""

    organization: Organization
    owner: User
    project: Project

    @property
    def id(self) -> str:
        return self.organization.id

    @property
    def actor(self) -> Actor:
        return self.actor_of(self.owner)

    def actor_of(self, user: User) -> Actor:
        return member(selectors.membership(user, self.id))

    def join(self, role: str) -> User:
        """Add a member by invitation."""
        email = f"{role}.{self.id}@example.com".lower()
        _, secret = services.invite_member(
            actor=self.actor, organization=self.organization, email=email, role=role
        )
        user = User.objects.create_user(email)
        services.accept_invitation(user=user, secret=secret)
        return user

    def seat(self, user: User) -> Membership:
        return selectors.membership(user, self.id)

    def mint(self, **fields: Any) -> tuple[ApiKey, str]:
        return mint_key(actor=self.actor, project=self.project, **{"name": "Backend", **fields})

    def browser(self, role: str = Role.OWNER) -> Client:
        """Return a logged-in client."""
        client = Client()
        client.force_login(self.owner if role == Role.OWNER else self.join(role))
        return client


def make_house(name: str = "Acme") -> House:
    owner = User.objects.create_user(f"owner@{name.lower()}.example")
    organization = services.create_organization(actor=OPERATOR, name=name, owner=owner)
    return House(organization, owner, selectors.default_project(organization))


def make_model(public_id: str = "small") -> Model:
    return catalog.create_model(actor=OPERATOR, public_id=public_id, name=public_id)


def make_variant(model: Model, precision: str = "bf16", **fields: Any) -> Variant:
    """Return a variant, published unless it has a parent."""
    facts = {"context_tokens": 512, "output_tokens_max": 256, "vocabulary_size": 1024} | fields
    variant = catalog.create_variant(
        actor=OPERATOR, model=model, precision=precision, weights=f"weights/{precision}", **facts
    )
    if variant.parent is None:
        variant = catalog.publish_variant(actor=OPERATOR, variant=variant)
    return variant


def make_deployment(variant: Variant, **fields: Any) -> Deployment:
    return catalog.create_deployment(actor=OPERATOR, variant=variant, **fields)


def quality_report(share: float = 0.9) -> dict[str, Any]:
    """Return a report as the demo model's evaluation writes it."""
    score = {"right": 270, "asked": 300, "share": share, "low": 0.86, "high": 0.93}
    return {
        "schema": 1,
        "accuracy": {"overall": score, "by_skill": {"lists": score}},
        "perplexity": 1.4,
        "size_bytes": 4_200_000,
        "output_tokens_per_second": 900,
    }

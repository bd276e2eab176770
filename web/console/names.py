"""Names for the ids that usage is counted by."""

from collections.abc import Mapping
from dataclasses import dataclass

from billing.metering.models import UsageEvent
from control.catalog import selectors as catalog
from control.keys import selectors as keys
from control.keys.models import ApiKey, Kind
from control.tenants import selectors as tenants
from control.tenants.models import Organization
from web.console.offers import public_id_of


@dataclass(frozen=True, slots=True)
class Names:
    """Id → name of all that an organization's usage can point at, archived and revoked too."""

    models: dict[str, str]
    variants: dict[str, str]
    keys: dict[str, str]
    projects: dict[str, str]

    def of(self, dimension: str) -> Mapping[str, str]:
        """Return the names of one dimension, none for no dimension."""
        every = {
            "model": self.models,
            "variant": self.variants,
            "key": self.keys,
            "project": self.projects,
        }
        return every.get(dimension, {})

    def of_event(self, event: UsageEvent) -> dict[str, str]:
        """Return the names that one request touched; what is gone keeps its id."""
        return {
            "model": self.variants.get(event.variant_id, event.variant_id),
            "key": self.keys.get(event.key_id, event.key_id),
            "project": self.projects.get(event.project_id, event.project_id),
        }


def names_for(organization: Organization) -> Names:
    """Return the names as the organization's members know them."""
    models = list(catalog.models_for(organization))
    every_key = keys.keys(organization, with_revoked=True, with_playground=True)
    every_project = tenants.projects(organization, with_archived=True)
    return Names(
        models={model.id: model.public_id for model in models},
        variants={v.id: public_id_of(m, v) for m in models for v in m.variants.all()},
        keys={key.id: key_name(key) for key in every_key},
        projects={project.id: project.name for project in every_project},
    )


def key_name(key: ApiKey) -> str:
    """Return what a key is called in tables."""
    if key.kind == Kind.PLAYGROUND:
        return f"Playground ({key.project.name})"
    return f"{key.name} (revoked)" if key.revoked_at else key.name

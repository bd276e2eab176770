"""Names for the ids that usage is counted by, asked for only by the pages that show them."""

from collections.abc import Callable, Mapping
from functools import cached_property

from billing.reading.sums import Usage
from control.api_keys import selectors as keys
from control.api_keys.models import ApiKey, ApiKeyKind
from control.catalog import selectors as catalog
from control.catalog.models import Variant
from web.console.base import PageContext
from web.console.offers import public_id_of


class IdLabels:
    """Id → name of all that an organization's usage can point at, archived and revoked too, as its
    members know them."""

    def __init__(self, page: PageContext) -> None:
        self._page = page

    @cached_property
    def models(self) -> dict[str, str]:
        """Models that the organization may use."""
        return {variant.model_id: variant.model.public_id for variant in self._variants}

    @property
    def talking_models(self) -> list[str]:
        """Names of those that generate text."""
        return [each.model.public_id for each in self._variants if not each.model.makes_embeddings]

    @cached_property
    def variants(self) -> dict[str, str]:
        """Published variants of those models."""
        return {variant.id: public_id_of(variant) for variant in self._variants}

    @cached_property
    def keys(self) -> dict[str, str]:
        """All keys there ever were, those of the playground too."""
        every = keys.keys(self._page.organization, with_revoked=True, with_playground=True)
        return {key.id: key_name(key) for key in every}

    @property
    def projects(self) -> dict[str, str]:
        """All projects, archived ones too."""
        return {project.id: project.name for project in self._page.every_project}

    def of(self, dimension: str) -> Mapping[str, str]:
        """Return the names of one dimension, none for no dimension."""
        every: dict[str, Callable[[], dict[str, str]]] = {
            "model": lambda: self.models,
            "variant": lambda: self.variants,
            "key": lambda: self.keys,
            "project": lambda: self.projects,
        }
        return every[dimension]() if dimension else {}

    def of_event(self, event: Usage) -> dict[str, str]:
        """Return the names that one request touched; what is gone keeps its id."""
        caller, variant_id = event.caller, event.supply.variant_id
        return {
            "model": self.variants.get(variant_id, variant_id),
            "key": self.keys.get(caller.key_id, caller.key_id),
            "project": self.projects.get(caller.project_id, caller.project_id),
        }

    @cached_property
    def _variants(self) -> list[Variant]:
        return list(catalog.variants_for(self._page.organization))


def key_name(key: ApiKey) -> str:
    """Return what a key is called in tables."""
    if key.kind == ApiKeyKind.PLAYGROUND:
        return f"Playground ({key.project.name})"
    return f"{key.name} (revoked)" if key.revoked_at else key.name

"""Names for the ids that usage is counted by, loaded only where a page shows them."""

from collections.abc import Callable, Mapping
from functools import cached_property

from django.utils import timezone
from django.utils.translation import gettext

from billing.reading.sums import Usage
from control.api_keys import selectors as keys
from control.api_keys.models import ApiKey, ApiKeyKind
from control.catalog import selectors as catalog
from control.catalog.models import Variant
from control.db.models import CredentialState
from web.console.base import PageContext
from web.console.offers import public_id_of


class IdLabels:
    """Names by id of everything that an organization's usage can refer to, including archived and
    revoked objects."""

    def __init__(self, page: PageContext) -> None:
        self._page = page

    @cached_property
    def models(self) -> dict[str, str]:
        """The models that the organization may use."""
        return {variant.model_id: variant.model.public_id for variant in self._variants}

    @property
    def talking_models(self) -> list[str]:
        """The names of the models that generate text."""
        return [each.model.public_id for each in self._variants if not each.model.makes_embeddings]

    @cached_property
    def variants(self) -> dict[str, str]:
        """The published variants of those models."""
        return {variant.id: public_id_of(variant) for variant in self._variants}

    def variants_of(self, model_id: str) -> list[str]:
        """Return the ids of a model's published variants."""
        return [variant.id for variant in self._variants if variant.model_id == model_id]

    @cached_property
    def keys(self) -> dict[str, str]:
        """All keys, including revoked ones and those of the playground."""
        all_keys = keys.keys(self._page.organization, with_revoked=True, with_playground=True)
        return {key.id: key_name(key) for key in all_keys}

    @property
    def projects(self) -> dict[str, str]:
        """All projects, including archived ones."""
        return {project.id: project.name for project in self._page.every_project}

    def of(self, dimension: str) -> Mapping[str, str]:
        """Return the names of a dimension; none if it is empty."""
        loaders: dict[str, Callable[[], dict[str, str]]] = {
            "model": lambda: self.models,
            "variant": lambda: self.variants,
            "key": lambda: self.keys,
            "project": lambda: self.projects,
        }
        return loaders[dimension]() if dimension else {}

    def of_event(self, event: Usage) -> dict[str, str]:
        """Return the names that a request refers to; ids where there is no name."""
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
    """Return a key's name in tables."""
    if key.kind == ApiKeyKind.PLAYGROUND:
        return gettext("Playground (%(project)s)") % {"project": key.project.name}
    match key.state(timezone.now()):
        case CredentialState.REVOKED:
            return gettext("%(name)s (revoked)") % {"name": key.name}
        case CredentialState.EXPIRED:
            return gettext("%(name)s (expired)") % {"name": key.name}
    return key.name

"""Names of what economics knows by id; what is gone keeps its id."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from django.utils.translation import gettext

from control.catalog.selectors import deployments, models
from control.organizations.selectors import organizations


@dataclass(frozen=True, slots=True)
class Names:
    """What ids are called."""

    models: dict[str, str] = field(default_factory=dict)
    variants: dict[str, str] = field(default_factory=dict)
    organizations: dict[str, str] = field(default_factory=dict)

    def model(self, model_id: str | None) -> str:
        """Return a model's public id."""
        return _named(self.models, model_id, gettext("Unknown model"))

    def variant(self, variant_id: str | None) -> str:
        """Return a variant as customers name it."""
        return _named(self.variants, variant_id, gettext("Unknown variant"))

    def organization(self, organization_id: str | None) -> str:
        """Return an organization's name."""
        return _named(self.organizations, organization_id, gettext("Nobody"))


def names(organization_ids: Iterable[str] = ()) -> Names:
    """Return the names of the whole catalog and of some organizations."""
    catalog = list(models())
    called = organizations().filter(id__in=set(organization_ids)).values_list("id", "name")
    return Names(
        models={model.id: model.public_id for model in catalog},
        variants={
            variant.id: f"{model.public_id}:{variant.precision}"
            for model in catalog
            for variant in model.variants.all()
        },
        organizations=dict(called),
    )


def deployment_names() -> dict[str, str]:
    """Return what each deployment is called: its variant, and whose it is alone."""
    return {each.id: _deployment(str(each.variant), each.dedicated_to) for each in deployments()}


def _deployment(variant: str, owner: object) -> str:
    if not owner:
        return variant
    return gettext("%(variant)s for %(organization)s") % {
        "variant": variant,
        "organization": owner,
    }


def _named(known: dict[str, str], key: str | None, nothing: str) -> str:
    return nothing if key is None else known.get(key, key)

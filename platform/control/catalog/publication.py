"""The requirements of a variant before customers may use it."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext

from control.catalog import selectors
from control.catalog.fleet_status import fleet_status
from control.catalog.models import Variant
from control.errors import Conflict

RequirementCode = Literal["weights", "quality_report", "price", "deployment"]
WAIVABLE: frozenset[RequirementCode] = frozenset({"price", "deployment"})
"""Requirements that an operator may waive with a reason."""
SERVING_STATES = frozenset({"ready", "asleep"})
"""States of a replica in which requests are answered; a request wakes one that sleeps."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that a variant needs; `problem` says what is missing, empty where nothing is."""

    code: RequirementCode
    problem: str = ""

    @property
    def is_met(self) -> bool:
        """Whether nothing is missing."""
        return not self.problem


class RequirementsMissing(Conflict):
    """A variant is not published yet, since it lacks something; `param` names the first."""

    code = "requirements_missing"

    def __init__(self, variant: Variant, missing: list[Requirement]) -> None:
        problems = " ".join(f"{each.code}: {each.problem}" for each in missing)
        waive = ""
        if all(each.code in WAIVABLE for each in missing):
            waive = " " + gettext("To publish it without, give a reason (override_reason).")
        words = gettext("%(variant)s is not published.") % {"variant": variant}
        super().__init__(f"{words} {problems}{waive}", param=missing[0].code)
        self.missing = missing


def requirements(variant: Variant) -> list[Requirement]:
    """Return what a variant needs for its publication; the fleet is asked whether it runs."""
    found = [Requirement("weights", _weights_problem(variant))]
    if variant.parent_id is not None:
        found.append(Requirement("quality_report", _report_problem(variant)))
    found.append(Requirement("price", _price_problem(variant, timezone.now())))
    found.append(Requirement("deployment", _deployment_problem(variant)))
    return found


def missing_requirements(variant: Variant) -> list[Requirement]:
    """Return the requirements that a variant does not meet."""
    return [each for each in requirements(variant) if not each.is_met]


def require_publishable(
    variant: Variant, missing: list[Requirement], override_reason: str = ""
) -> None:
    """Raise RequirementsMissing where something is missing that the reason does not waive."""
    if override_reason.strip():
        missing = [each for each in missing if each.code not in WAIVABLE]
    if missing:
        raise RequirementsMissing(variant, missing)


def _weights_problem(variant: Variant) -> str:
    return "" if variant.weights.strip() else gettext("It has no weights.")


def _report_problem(variant: Variant) -> str:
    if variant.latest_report is not None:
        return ""
    return gettext("A quantized variant needs a quality report.")


def _price_problem(variant: Variant, at: datetime) -> str:
    in_force = variant.prices.filter(
        Q(book__ends_at__isnull=True) | Q(book__ends_at__gt=at),
        tier="default",
        book__published_at__isnull=False,
        book__cancelled_at__isnull=True,
        book__effective_at__lte=at,
    )
    priced = set(in_force.values_list("book__organization_id", flat=True))
    if not priced:
        return gettext("It has no price in force in the default tier.")
    return _unserved(
        variant,
        priced,
        gettext("It has no list price in force in the default tier, only contract prices."),
        gettext("It has no price in force in the default tier for %(organizations)s."),
    )


def _deployment_problem(variant: Variant) -> str:
    deployments = list(selectors.live_deployments(variant))
    if not deployments:
        return gettext("It has no deployment.")
    fleet = fleet_status()
    ready = {
        each.dedicated_to_id
        for each in deployments
        if SERVING_STATES.intersection(replica.state for replica in fleet.of(each.id))
    }
    if not ready:
        replicas = "; ".join(fleet.summary(str(each.fleet_id), each.id) for each in deployments)
        words = gettext("No replica of it is ready (replicas: %(replicas)s).")
        return words % {"replicas": replicas}
    return _unserved(
        variant,
        ready,
        gettext("Replicas of it are ready only in deployments that are dedicated to customers."),
        gettext("No replica of it is ready for %(organizations)s."),
    )


def _unserved(variant: Variant, served: Collection[str | None], for_all: str, for_some: str) -> str:
    """Return the problem of a model that is open to all unless all are served (None), or of one
    whose organizations are not all served; empty if there is none."""
    if None in served:
        return ""
    wanted = variant.model.organization_ids
    if wanted is None:
        return for_all
    missing = ", ".join(each for each in wanted if each not in served)
    return for_some % {"organizations": missing} if missing else ""

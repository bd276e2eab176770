"""What the operator does to limits and terms."""

import random
from contextlib import suppress
from typing import Any

from control.errors import Conflict, ObjectNotFound
from control.limits.models import SpendingLimit
from control.limits.spending import add_limit, change_limit, remove_limit
from control.organizations.models import Organization, Project
from control.organizations.projects import set_project_limit
from control.organizations.services import set_organization_limit, set_organization_terms
from serving.contract.budget import limit_budget_id
from tests.simulation.cast import OPERATOR, Cast, Prepared
from tests.simulation.plan import Deed
from tests.simulation.world import FINE


def _fine_limit(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    """Limit somebody by the week or the day, hard or soft, or lift that."""
    caller, period = rng.choice(cast.world.callers), rng.choice(FINE)
    owner = rng.choice((caller.organization_id, caller.project_id, caller.key_id))
    least = rng.choice((None, 60_000))
    nanos = None if least is None else cast.world.scaled(rng, rng.randrange(least, 400_000))
    is_hard = rng.random() < 0.8
    budget_id, now = limit_budget_id(owner, period), cast.now

    def work() -> None:
        organization = Organization.objects.get(id=caller.organization_id)
        asked: Any = {"actor": OPERATOR, "organization": organization, "now": now}
        with suppress(ObjectNotFound, Conflict):
            if nanos is None:
                remove_limit(**asked, budget_id=budget_id)
            elif SpendingLimit.objects.filter(budget_id=budget_id).exists():
                change_limit(**asked, budget_id=budget_id, limit_nanos=nanos, is_hard=is_hard)
            else:
                terms: Any = {"period": period, "limit_nanos": nanos, "is_hard": is_hard}
                add_limit(**asked, owner_id=owner, **terms)

    return Prepared(f"operator limits {budget_id} to {nanos}, hard: {is_hard}", work)


def _limit(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    most = rng.choice((None, 1_000_000, 60_000))
    nanos = None if most is None else cast.world.scaled(rng, rng.randrange(most))
    if rng.random() < 0.5:
        organization_id = rng.choice(cast.world.organization_ids)
        return Prepared(
            f"operator limits {organization_id} to {nanos}",
            lambda: set_organization_limit(
                actor=OPERATOR, spend_limit_nanos=nanos,
                organization=Organization.objects.get(id=organization_id),
            ),
        )  # fmt: skip
    project_id = rng.choice(sorted({caller.project_id for caller in cast.world.callers}))
    return Prepared(
        f"operator limits {project_id} to {nanos}",
        lambda: set_project_limit(
            actor=OPERATOR, spend_limit_nanos=nanos, project=Project.objects.get(id=project_id)
        ),
    )


def _terms(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    organization_id = rng.choice(cast.world.organization_ids)
    mode = rng.choice(("prepaid", "prepaid", "postpaid"))
    limit = cast.world.limits[organization_id]
    return Prepared(
        f"operator makes {organization_id} {mode}",
        lambda: set_organization_terms(
            actor=OPERATOR, billing_mode=mode, spend_limit_nanos=limit, weight=1,
            credit_limit_nanos=limit,
            organization=Organization.objects.get(id=organization_id),
        ),
    )  # fmt: skip


DEEDS = {"limit": _limit, "fine_limit": _fine_limit, "terms": _terms}

"""The plans of deployments, which fleets make before anything starts: the memory that a replica
needs, whether there is room, and how replicas would be replaced."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.conf import settings
from django.utils.translation import gettext

from control.catalog.fleet_status import FAILURE_SECONDS, KEPT_SECONDS, ask
from control.catalog.models import Deployment, Variant
from control.errors import Conflict
from serving.contract.codec import ContractError, decode
from serving.contract.deployment_plan import DeploymentPlan, DeploymentPlans

ROLLOUT_FIELDS = frozenset(
    {
        "engine", "engine_arguments", "slots", "accelerator", "tensor_parallel_size",
        "pipeline_parallel_size", "context_tokens",
    }
)  # fmt: skip
"""The fields of a variant and a deployment that replace its replicas."""
WAIT_FIELDS = frozenset({"queue_seconds", "wake_seconds"})
GIB = 1024**3


class PlanCache:
    """The last plans by deployment, and the monotonic time until which they are returned."""

    def __init__(self) -> None:
        self.plans: dict[str, DeploymentPlan] = {}
        self.expires_at = 0.0

    def get(self) -> Mapping[str, DeploymentPlan]:
        """Return the plans; ask all fleets at once if the last ones have expired."""
        if time.monotonic() >= self.expires_at:
            urls = settings.CONFIG.fleet_urls.values()
            with ThreadPoolExecutor(len(urls)) as threads:
                found = list(threads.map(_plans, urls))
            self.plans = {plan.deployment_id: plan for each in found for plan in each or ()}
            kept_seconds = FAILURE_SECONDS if None in found else KEPT_SECONDS
            self.expires_at = time.monotonic() + kept_seconds
        return self.plans

    def clear(self) -> None:
        """Let the next call ask the fleets."""
        self.expires_at = 0.0


cache = PlanCache()


def deployment_plan(deployment: Deployment) -> DeploymentPlan | None:
    """Return its fleet's plan, None for a deployment that others run and while the fleet does not
    respond."""
    return cache.get().get(deployment.id)


def require_rollout(
    deployment: Deployment, row: Deployment | Variant, changes: Mapping[str, Any]
) -> None:
    """Raise Conflict where changes of a row would replace the deployment's replicas, and requests
    would fail meanwhile. A change that stops it, or lets requests wait longer, is no such change:
    the fleet judges again."""
    different = {field for field in changes if changes[field] != getattr(row, field)}
    if not different & ROLLOUT_FIELDS or different & WAIT_FIELDS:
        return
    if deployment.is_stopped or changes.get("replicas_min") == 0:
        return
    plan = deployment_plan(deployment)
    if plan is not None and plan.rollout == "refused":
        raise Conflict(
            f"{deployment} cannot be replaced now: {plan.reason}.", code="rollout_refused"
        )


def plan_lines(plan: DeploymentPlan) -> list[str]:
    """Return a plan in sentences, for the operators' page."""
    lines = [gettext("A replica needs %(needs)s.") % {"needs": plan.needs}] if plan.needs else []
    if (estimate := plan.estimate) is not None:
        figures = {
            "weights": _gib(estimate.weights_bytes),
            "least": _gib(estimate.least_bytes),
            "full": _gib(estimate.full_bytes),
            "context": f"{estimate.context_tokens:,}",
            "slots": estimate.slots,
        }
        words = gettext(
            "Weights %(weights)s; with the KV cache of one sequence of %(context)s tokens"
            " %(least)s, of %(slots)s such sequences %(full)s."
        )
        lines.append(words % figures)
    lines.append(plan.room or gettext("There is room for one more replica."))
    rollout = {
        "rolling": gettext("Changes replace replicas without interruption."),
        "recreate": gettext("Changes stop a replica before its successor starts."),
        "refused": gettext("Changes that replace replicas are refused."),
    }
    return [*lines, f"{rollout[plan.rollout]} {plan.reason}".strip()]


def _plans(url: str) -> tuple[DeploymentPlan, ...] | None:
    """Return a fleet's plans, None if it does not respond."""
    try:
        return decode(ask(f"{url}/plans"), DeploymentPlans).plans
    except (OSError, ContractError):
        return None


def _gib(count_bytes: int) -> str:
    return f"{count_bytes / GIB:,.1f} GiB"

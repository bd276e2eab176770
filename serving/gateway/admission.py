"""Admission: the yes or no before any work, with the money for the worst case set aside."""

from datetime import datetime

import msgspec

from serving.contract.records import DeploymentRecord
from serving.gateway.directory import Directory, Principal
from serving.gateway.errors import NoMoney, Unavailable
from serving.gateway.job import Job
from serving.gateway.price_list import Schedule
from serving.pool.pool import Pool
from serving.usage.hold import Hold
from serving.usage.journal import Journal
from serving.usage.treasury import BudgetRefused, MoneyRecalled, MoneyUnavailable, Treasury


class Admitted(msgspec.Struct, frozen=True):
    """Where the job may run, at what prices, with what money held."""

    deployment: DeploymentRecord
    pool: Pool
    schedule: Schedule
    hold: Hold


class Admission:
    """Asks the directory where, and the treasury whether."""

    def __init__(self, directory: Directory, treasury: Treasury, journal: Journal) -> None:
        self._directory = directory
        self._treasury = treasury
        self._journal = journal

    async def admit(self, principal: Principal, job: Job, now: datetime) -> Admitted:
        """Hold the worst case on every budget of the chain, of a request received at `now`.

        Raises NoMoney or Unavailable.
        """
        if not self._journal.healthy:
            raise usage_unavailable()
        deployment, pool = self._place(job.model.variant_id, principal.organization_id)
        schedule = self._directory.schedule(job.model.variant_id, principal.organization_id, now)
        if schedule is None:
            raise model_unavailable()
        worst = job.worst_case_nanos(schedule)
        try:
            hold = await self._treasury.hold(principal.budget_ids, worst, now)
        except BudgetRefused as refused:
            available_nanos = refused.available_nanos
            raise NoMoney(refused.code, cost_nanos=worst, available_nanos=available_nanos) from None
        except MoneyRecalled:
            raise money_recalled() from None
        except MoneyUnavailable:
            raise usage_unavailable() from None
        return Admitted(deployment, pool, schedule, hold)

    def _place(self, variant_id: str, organization_id: str) -> tuple[DeploymentRecord, Pool]:
        for deployment in self._directory.deployments(variant_id, organization_id):
            pool = self._directory.pools[deployment.deployment_id]
            if pool.has_ready_replica:
                return deployment, pool
        raise model_unavailable()


def usage_unavailable() -> Unavailable:
    """Return the error for work that could not be metered or paid for."""
    return Unavailable("Usage cannot be recorded at the moment.", code="usage_unavailable")


def money_recalled() -> Unavailable:
    """Return the error for money that other gateways are giving back: a retry finds it."""
    return Unavailable("Your budget is in use elsewhere. Please retry.", code="usage_unavailable")


def model_unavailable() -> Unavailable:
    """Return the error for a model that runs nowhere right now."""
    message = "The model is not running at the moment."
    return Unavailable(message, code="model_unavailable", retry_after_seconds=5)

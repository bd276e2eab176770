"""Who uses the platform: organizations that pay afterwards, with projects, keys and limits."""

import secrets
from datetime import datetime
from functools import cache
from io import StringIO
from typing import NamedTuple

from django.core.management import call_command
from django.utils import timezone

from billing.credit.selectors import key_at
from billing.credit.services.budgets import open_budgets
from control.api_keys.models import ApiKey
from control.organizations.models import BillingMode, Organization, Project
from control.pricing.models import Price
from serving.contract.budget import balance_budget_id, limit_budget_id
from tests.fixtures.usage import make_price

LIMIT_NANOS = 10**15
"""A million dollars: nobody comes near it."""


class Caller(NamedTuple):
    """A key with all that its requests are charged to."""

    organization_id: str
    project_id: str
    key_id: str

    @property
    def budget_ids(self) -> tuple[str, str, str, str]:
        """The chain of its requests."""
        return (
            balance_budget_id(self.organization_id),
            limit_budget_id(self.organization_id),
            limit_budget_id(self.project_id),
            limit_budget_id(self.key_id),
        )


def wait() -> None:
    """Do nothing: whoever is asked to has started."""


def prepare_database() -> None:
    """Make the tables and grant the application its rights, as the product does."""
    call_command("upgrade", stdout=StringIO())


def make_world(organizations: int, keys_each: int, now: datetime | None = None) -> None:
    """Make organizations with a project each, keys, limits, and the price they pay."""
    now = now or timezone.now()
    make_price(at=now)
    owners = Organization.objects.bulk_create(
        Organization(
            name=f"organization {number}",
            billing_mode=BillingMode.POSTPAID,
            spend_limit_nanos=LIMIT_NANOS,
            credit_limit_nanos=LIMIT_NANOS,
        )
        for number in range(organizations)
    )
    projects = Project.objects.bulk_create(
        Project(organization=one, name="Default", spend_limit_nanos=LIMIT_NANOS) for one in owners
    )
    ApiKey.objects.bulk_create(_key(one) for one in projects for _ in range(keys_each))
    chains = {budget_id for caller in callers() for budget_id in caller.budget_ids}
    open_budgets(key_at(budget_id, now) for budget_id in chains)


def _key(project: Project) -> ApiKey:
    return ApiKey(
        organization=project.organization, project=project, name="bench",
        digest=secrets.token_hex(32), prefix="pen_live_abc", last_four="wxyz",
        spend_limit_nanos=LIMIT_NANOS,
    )  # fmt: skip


@cache
def callers() -> list[Caller]:
    """Return every key, in the order of organizations."""
    rows = ApiKey.objects.order_by("organization_id", "id")
    return [Caller(*row) for row in rows.values_list("organization_id", "project_id", "id")]


@cache
def price() -> Price:
    """Return the one price there is, with its variant."""
    return Price.objects.select_related("variant").get()

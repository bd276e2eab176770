"""The limit that binds: how much may be spent, and what limits it."""

from dataclasses import dataclass

from django.utils import timezone

from billing.alerts.wording import limit_words
from billing.credit.selectors import LimitStatus, binding_limit
from control.api_keys.models import ApiKey
from control.organizations.models import Project
from serving.contract.budget import kind_of
from web.console.base import PageContext


@dataclass(frozen=True, slots=True)
class BindingLimit:
    """The context of `console/billing/_binding_limit.html` and its like, as `binding`."""

    limit: LimitStatus

    @property
    def words(self) -> str:
        """The name of the limit."""
        return limit_words(self.limit.budget_id, self.limit.name)

    @property
    def is_balance(self) -> bool:
        """Whether it is the credit balance."""
        return kind_of(self.limit.budget_id) == "balance"


def binding_limit_view(limit: LimitStatus | None) -> BindingLimit | None:
    """Return the context of a limit; None where nothing limits."""
    return None if limit is None else BindingLimit(limit)


def page_binding_limit(
    page: PageContext, *, project: Project | None = None, key: ApiKey | None = None
) -> BindingLimit | None:
    """Return the context of the limit that binds a project or a key, for a member who may see
    money."""
    if not page.may_see_money:
        return None
    return binding_limit_view(
        binding_limit(page.organization, timezone.now(), project=project, key=key)
    )

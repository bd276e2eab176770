"""Budgets for second tries, so that trouble is not multiplied: retries are a tenth of traffic."""

from collections import OrderedDict

SHARE = 0.1
SAVED_MAX = 10.0
ORGANIZATIONS_MAX = 10_000
"""Whose budgets are remembered; beyond that, the one that took its last second try longest ago has
a full one again."""


class RetryBudget:
    """Every request saves `share` of a second try, up to ten of them; `saved` is there at first."""

    def __init__(self, share: float = SHARE, saved: float = SAVED_MAX) -> None:
        self._share = share
        self._saved = saved

    @property
    def is_full(self) -> bool:
        """Whether it saves no more."""
        return self._saved >= SAVED_MAX

    def note_request(self) -> None:
        """Count a request."""
        self._saved = min(SAVED_MAX, self._saved + self._share)

    def take(self) -> bool:
        """Tell whether a second try is allowed now, and count it."""
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True


class OrganizationRetryBudgets:
    """A budget for each organization: nobody's failures use up another's second tries."""

    def __init__(self) -> None:
        self._budgets: OrderedDict[str, RetryBudget] = OrderedDict()
        """Of organizations that have taken second tries, until they are full again."""

    def note_request(self, organization_id: str) -> None:
        """Count a request of an organization."""
        budget = self._budgets.get(organization_id)
        if budget is None:
            return
        budget.note_request()
        if budget.is_full:
            del self._budgets[organization_id]

    def take(self, organization_id: str) -> bool:
        """Tell whether an organization is allowed a second try now, and count it."""
        budget = self._budgets.setdefault(organization_id, RetryBudget())
        self._budgets.move_to_end(organization_id)
        if len(self._budgets) > ORGANIZATIONS_MAX:
            self._budgets.popitem(last=False)
        return budget.take()

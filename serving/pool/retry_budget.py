"""Budgets for retries, so that trouble is not multiplied: of each organization a tenth of its
traffic, of a gateway a fifth of all."""

from collections import OrderedDict

SHARE = 0.1
SAVED_MAX = 10.0
ORGANIZATIONS_MAX = 10_000
"""Whose budgets are remembered; beyond that, the one that took its last retry longest ago has a
full one again."""
GATEWAY_SHARE = 0.2
"""Above `SHARE`, so that an organization whose requests all fail saves more retries for all of them
than it takes."""
GATEWAY_SAVED_MAX = 256.0
"""As many as a large replica has slots: where it breaks, its requests may all be tried again."""


class RetryBudget:
    """Every request saves `share` of a retry, up to `saved_max`; `saved` is there at first."""

    def __init__(
        self, share: float = SHARE, saved: float = SAVED_MAX, saved_max: float = SAVED_MAX
    ) -> None:
        self._share = share
        self._saved = saved
        self._saved_max = saved_max

    @property
    def is_full(self) -> bool:
        """Whether it saves no more."""
        return self._saved >= self._saved_max

    @property
    def has_retry(self) -> bool:
        """Whether a retry is allowed now."""
        return self._saved >= 1.0

    def record_request(self) -> None:
        """Count a request."""
        self._saved = min(self._saved_max, self._saved + self._share)

    def take(self) -> bool:
        """Tell whether a retry is allowed now, and count it."""
        if not self.has_retry:
            return False
        self._saved -= 1.0
        return True


class OrganizationRetryBudgets:
    """A budget for each organization, so that its failures use up no retries of others, and one for
    all of them, which bounds retries when everybody's requests fail."""

    def __init__(self) -> None:
        self._budgets: OrderedDict[str, RetryBudget] = OrderedDict()
        """Of organizations that have taken retries, until they are full again."""
        self._gateway = RetryBudget(GATEWAY_SHARE, GATEWAY_SAVED_MAX, GATEWAY_SAVED_MAX)

    def record_request(self, organization_id: str) -> None:
        """Count a request of an organization."""
        self._gateway.record_request()
        budget = self._budgets.get(organization_id)
        if budget is None:
            return
        budget.record_request()
        if budget.is_full:
            del self._budgets[organization_id]

    def take(self, organization_id: str) -> bool:
        """Tell whether an organization is allowed a retry now, and count it."""
        if not self._gateway.has_retry:
            return False
        budget = self._budgets.setdefault(organization_id, RetryBudget())
        self._budgets.move_to_end(organization_id)
        if len(self._budgets) > ORGANIZATIONS_MAX:
            self._budgets.popitem(last=False)
        return budget.take() and self._gateway.take()

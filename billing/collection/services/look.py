"""What a look at an organization knows."""

from dataclasses import dataclass
from datetime import datetime

from billing.collection.models import Case, Settings
from billing.collection.selectors import Debt
from control.organizations.models import Organization


@dataclass(frozen=True, slots=True)
class Look:
    """One organization, locked, and what it owes at a moment."""

    case: Case
    organization: Organization
    owed: Debt
    settings: Settings
    now: datetime

    @property
    def is_owing(self) -> bool:
        """Whether there is enough to collect."""
        return bool(self.owed.due) and self.owed.cents >= self.settings.min_cents

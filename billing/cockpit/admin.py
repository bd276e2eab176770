"""The cockpit's pages, at the accounts that they are about."""

from typing import Any

from django.contrib import admin

from billing.cockpit.deferred_page import DeferredPage
from billing.cockpit.journal import JournalPage
from billing.cockpit.owed_page import OwedPage
from billing.cockpit.revenue_page import RevenuePage
from billing.cockpit.statement_page import StatementPage
from billing.cockpit.trial_balance import TrialBalancePage
from billing.ledger.admin import AccountAdmin
from billing.ledger.models import Account

admin.site.unregister(Account)


@admin.register(Account)
class BooksAdmin(AccountAdmin):
    """Accounts, and the pages that read them."""

    def get_custom_urls(self) -> tuple[tuple[str, str, Any], ...]:
        """Return the addresses of the pages."""
        return (
            (
                "trial-balance/",
                "cockpit_trial_balance",
                TrialBalancePage.as_view(model_admin=self),
            ),
            ("journal/", "cockpit_journal", JournalPage.as_view(model_admin=self)),
            ("owed/", "cockpit_owed", OwedPage.as_view(model_admin=self)),
            ("statement/", "cockpit_statement", StatementPage.as_view(model_admin=self)),
            ("revenue/", "cockpit_revenue", RevenuePage.as_view(model_admin=self)),
            ("deferred/", "cockpit_deferred", DeferredPage.as_view(model_admin=self)),
        )

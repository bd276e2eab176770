"""The Django app of the ledger."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from control.permissions import Permission


class LedgerConfig(AppConfig):
    """Accounts, transactions and entries."""

    name = "billing.ledger"
    label = "ledger"
    verbose_name = _("Ledger")
    change_permission = Permission.FINANCE_WRITE
    append_only = ("ledger_account", "ledger_transaction", "ledger_entry")

"""The Django app of the ledger."""

from django.apps import AppConfig

from control.operators import Duty


class LedgerConfig(AppConfig):
    """Accounts, transactions and entries."""

    name = "billing.ledger"
    label = "ledger"
    verbose_name = "Ledger"
    duty = Duty.KEEP_BOOKS
    facts = ("ledger_account", "ledger_transaction", "ledger_entry")

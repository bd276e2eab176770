"""The Django app of the ledger."""

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    """Accounts, transactions and entries."""

    name = "billing.ledger"
    label = "ledger"
    verbose_name = "Ledger"
    default_auto_field = "django.db.models.BigAutoField"
    facts = ("ledger_account", "ledger_transaction", "ledger_entry")

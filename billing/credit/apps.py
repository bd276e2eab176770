"""The Django app of credit."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from control.permissions import Permission


class CreditConfig(AppConfig):
    """Credit grants, budgets and leases."""

    name = "billing.credit"
    label = "credit"
    verbose_name = _("Credit")
    deliveries = "billing.credit.deliveries"
    change_permission = Permission.FINANCE_WRITE

    moved_by_functions = ("credit_budget", "credit_lease")
    append_only = ("credit_payment", "credit_welcome")

    def ready(self) -> None:
        """Listen for new organizations, verified people, changed limits and payments."""
        from billing.credit import standing, welcome
        from billing.credit.services import budgets

        welcome.listen()
        standing.listen()
        budgets.listen()

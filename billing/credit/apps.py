"""The Django app of credit."""

from django.apps import AppConfig

from control.operators import Duty


class CreditConfig(AppConfig):
    """Credit grants, budgets and leases."""

    name = "billing.credit"
    label = "credit"
    verbose_name = "Credit"
    deliveries = "billing.credit.deliveries"
    duty = Duty.KEEP_BOOKS

    moved_by_functions = ("credit_budget", "credit_lease")
    facts = ("credit_payment", "credit_welcome")

    def ready(self) -> None:
        """Listen for new organizations, verified people, changed limits and payments."""
        from billing.credit import standing, welcome
        from billing.credit.services import budgets

        welcome.listen()
        standing.listen()
        budgets.listen()

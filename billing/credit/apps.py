"""The Django app of credit."""

from django.apps import AppConfig


class CreditConfig(AppConfig):
    """Credit grants, budgets and leases."""

    name = "billing.credit"
    label = "credit"
    verbose_name = "Credit"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Listen for new organizations."""
        from billing.credit import welcome

        welcome.listen()

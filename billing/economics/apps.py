"""The Django app of economics."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from control.permissions import Permission


class EconomicsConfig(AppConfig):
    """Engine counters, reconciliation, margin, replay and the FOCUS export."""

    name = "billing.economics"
    label = "economics"
    verbose_name = _("Costs")
    change_permission = Permission.FINANCE_WRITE

    def ready(self) -> None:
        """Keep deployments whose engines were counted."""
        from billing.economics import services

        services.listen()

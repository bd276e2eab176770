"""The Django app of alerts."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from control.permissions import Permission


class AlertsConfig(AppConfig):
    """What customers are told about their spending."""

    name = "billing.alerts"
    label = "alerts"
    verbose_name = _("Alerts")
    change_permission = Permission.FINANCE_WRITE

    def ready(self) -> None:
        """Tell the admin what a limit stops."""
        from billing.alerts.consequences import listen

        listen()

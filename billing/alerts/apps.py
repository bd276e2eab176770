"""The Django app of alerts."""

from django.apps import AppConfig

from control.permissions import Permission


class AlertsConfig(AppConfig):
    """What customers are told about their spending."""

    name = "billing.alerts"
    label = "alerts"
    verbose_name = "Alerts"
    change_permission = Permission.FINANCE_WRITE

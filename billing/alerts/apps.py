"""The Django app of alerts."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """What customers are told about their spending."""

    name = "billing.alerts"
    label = "alerts"
    verbose_name = "Alerts"
    default_auto_field = "django.db.models.BigAutoField"

"""The Django app of alerts."""

from django.apps import AppConfig

from control.operators import Duty


class AlertsConfig(AppConfig):
    """What customers are told about their spending."""

    name = "billing.alerts"
    label = "alerts"
    verbose_name = "Alerts"
    duty = Duty.KEEP_BOOKS

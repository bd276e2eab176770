"""The Django app of reading."""

from django.apps import AppConfig

from control.permissions import Permission


class ReadingConfig(AppConfig):
    """Questions about usage and costs; no models."""

    name = "billing.reading"
    label = "reading"
    verbose_name = "Reading"
    change_permission = Permission.FINANCE_WRITE

"""The Django app of reading."""

from django.apps import AppConfig

from control.operators import Duty


class ReadingConfig(AppConfig):
    """Questions about usage and costs; no models."""

    name = "billing.reading"
    label = "reading"
    verbose_name = "Reading"
    duty = Duty.KEEP_BOOKS

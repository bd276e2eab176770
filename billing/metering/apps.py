"""The Django app of metering."""

from django.apps import AppConfig


class MeteringConfig(AppConfig):
    """Usage events, dead letters and rollups."""

    name = "billing.metering"
    label = "metering"
    verbose_name = "Metering"
    default_auto_field = "django.db.models.BigAutoField"

"""The Django app of prices."""

from django.apps import AppConfig


class PricesConfig(AppConfig):
    """Price books."""

    name = "control.prices"
    label = "prices"
    verbose_name = "Prices"
    default_auto_field = "django.db.models.BigAutoField"

"""The Django app of prices."""

from django.apps import AppConfig

from control.operators import Duty


class PricesConfig(AppConfig):
    """Price books."""

    name = "control.prices"
    label = "prices"
    verbose_name = "Prices"
    duty = Duty.KEEP_BOOKS
    default_auto_field = "django.db.models.BigAutoField"

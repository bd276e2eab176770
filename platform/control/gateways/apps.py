"""The Django app of gateways."""

from django.apps import AppConfig


class GatewaysConfig(AppConfig):
    """Which gateway is whose."""

    name = "control.gateways"
    label = "gateways"
    verbose_name = "Gateways"
    default_auto_field = "django.db.models.BigAutoField"
    facts = ("gateways_named",)

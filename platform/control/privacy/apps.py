"""The Django app of privacy."""

from django.apps import AppConfig

from control.operators import Duty


class PrivacyConfig(AppConfig):
    """Copies and erasures."""

    name = "control.privacy"
    label = "privacy"
    verbose_name = "Privacy"
    duty = Duty.HELP_CUSTOMERS
    duty_to_look = Duty.HELP_CUSTOMERS
    default_auto_field = "django.db.models.BigAutoField"

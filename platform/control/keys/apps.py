"""The Django app of keys."""

from django.apps import AppConfig


class KeysConfig(AppConfig):
    """API keys."""

    name = "control.keys"
    label = "keys"
    verbose_name = "API keys"
    default_auto_field = "django.db.models.BigAutoField"

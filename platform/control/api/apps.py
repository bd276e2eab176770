"""The Django app of the management API."""

from django.apps import AppConfig


class ApiConfig(AppConfig):
    """The management REST API."""

    name = "control.api"
    label = "api"
    default_auto_field = "django.db.models.BigAutoField"

"""The Django app of publish."""

from django.apps import AppConfig


class PublishConfig(AppConfig):
    """The change feed that the data plane follows."""

    name = "control.feed"
    label = "publish"
    verbose_name = "Change feed"
    default_auto_field = "django.db.models.BigAutoField"

"""The Django app of the change feed."""

from django.apps import AppConfig


class FeedConfig(AppConfig):
    """The change feed that the data plane follows."""

    name = "control.feed"
    label = "publish"
    verbose_name = "Change feed"
    default_auto_field = "django.db.models.BigAutoField"

"""The Django app of economics."""

from django.apps import AppConfig


class EconomicsConfig(AppConfig):
    """Engine counters, reconciliation, margin, replay and the FOCUS export."""

    name = "billing.economics"
    label = "economics"
    verbose_name = "Economics"
    default_auto_field = "django.db.models.BigAutoField"

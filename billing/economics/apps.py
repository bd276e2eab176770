"""The Django app of economics."""

from django.apps import AppConfig

from control.operators import Duty


class EconomicsConfig(AppConfig):
    """Engine counters, reconciliation, margin, replay and the FOCUS export."""

    name = "billing.economics"
    label = "economics"
    verbose_name = "Economics"
    duty = Duty.KEEP_BOOKS

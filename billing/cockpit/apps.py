"""The Django app of the cockpit."""

from django.apps import AppConfig

from control.operators import Duty


class CockpitConfig(AppConfig):
    """The operator's pages on the books."""

    name = "billing.cockpit"
    label = "cockpit"
    verbose_name = "Cockpit"
    duty = Duty.KEEP_BOOKS
    facts = ("cockpit_day_revenue",)
    checks = "billing.cockpit.integrity"

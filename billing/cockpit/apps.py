"""The Django app of the cockpit."""

from django.apps import AppConfig

from control.permissions import Permission


class CockpitConfig(AppConfig):
    """The operator's pages on the books."""

    name = "billing.cockpit"
    label = "cockpit"
    verbose_name = "Cockpit"
    change_permission = Permission.FINANCE_WRITE
    append_only = ("cockpit_day_revenue",)
    checks = "billing.cockpit.integrity"

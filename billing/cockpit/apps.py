"""The Django app of the finance reports."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from control.permissions import Permission


class CockpitConfig(AppConfig):
    """The operator's pages on the ledger."""

    name = "billing.cockpit"
    label = "cockpit"
    verbose_name = _("Reports")
    change_permission = Permission.FINANCE_WRITE
    append_only = ("cockpit_day_revenue",)
    checks = "billing.cockpit.integrity"

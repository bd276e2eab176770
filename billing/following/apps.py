"""The Django app of the followers."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from control.permissions import Permission


class FollowingConfig(AppConfig):
    """Cursors, rollups, seals and archives."""

    name = "billing.following"
    label = "following"
    verbose_name = _("Usage processing")
    change_permission = Permission.FINANCE_WRITE
    append_only = ("following_seal", "following_proof")

    def ready(self) -> None:
        """Tell budgets that are opened in mid-period what was spent before, and `/metrics` whether
        the books are well."""
        from billing.credit.services.budgets import know_spent
        from billing.following.metrics import gauges
        from billing.following.spent import spent_in
        from control.telemetry.metrics import register

        know_spent(spent_in)
        register(gauges)

"""The Django app of metering."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from control.permissions import Permission


class MeteringConfig(AppConfig):
    """Usage events, their corrections, dead letters and alarms."""

    name = "billing.metering"
    label = "metering"
    verbose_name = _("Metering")
    change_permission = Permission.FINANCE_WRITE
    append_only = (
        "metering_usage_event",
        "metering_usage_correction",
        "metering_caller",
        "metering_supply",
        "metering_origin",
    )

    def ready(self) -> None:
        """Forget what was interned when the database becomes another one; hear of messages that
        were given up, of replicas that failed, and of what is about to be deleted."""
        from billing.metering import catalog_references, failed_replicas, undelivered
        from billing.metering.claims import forget_claims
        from billing.metering.interning import forget_interned
        from control.feed.database_identity import on_change

        on_change(forget_interned)
        on_change(forget_claims)
        undelivered.listen()
        failed_replicas.listen()
        catalog_references.listen()

"""The Django app of metering."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from control.permissions import Permission


class MeteringConfig(AppConfig):
    """Usage events, their corrections and dead letters."""

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
        """Forget what was interned when the database becomes another one; hear of what is about to
        be deleted; show what needs attention beside the alarms."""
        from billing.metering import catalog_references
        from billing.metering.attention import usage_to_look_at
        from billing.metering.claims import forget_claims
        from billing.metering.interning import forget_interned
        from control.alarms import page as alarms_page
        from control.feed.database_identity import on_change

        on_change(forget_interned)
        on_change(forget_claims)
        catalog_references.listen()
        alarms_page.register(usage_to_look_at)

"""The Django app of the outbox."""

from django.apps import AppConfig

from control.operators import Duty


class OutboxConfig(AppConfig):
    """Messages to the outside that are delivered until done."""

    name = "control.outbox"
    label = "outbox"
    verbose_name = "Outbox"
    duty = Duty.HELP_CUSTOMERS
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the outbox's metrics."""
        from control.outbox.services import metrics
        from control.telemetry.metrics import register

        register(metrics)

"""The Django app of the internal API."""

from django.apps import AppConfig


class DataplaneConfig(AppConfig):
    """What gateways and the fleet call."""

    name = "control.dataplane"
    label = "dataplane"
    verbose_name = "Data plane"

    def ready(self) -> None:
        """Erase stored responses where an organization turns idempotency off, or is deleted."""
        from control.dataplane import idempotency

        idempotency.listen()

"""The Django app of idempotency."""

from django.apps import AppConfig


class IdempotencyConfig(AppConfig):
    """One answer for each idempotency key."""

    name = "control.idempotency"
    label = "idempotency"
    verbose_name = "Idempotency"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Erase the answers of who refuses keys."""
        from control.idempotency import erasing

        erasing.listen()

"""The Django app of idempotency."""

from django.apps import AppConfig


class IdempotencyConfig(AppConfig):
    """One answer for each idempotency key."""

    name = "control.idempotency"
    label = "idempotency"
    verbose_name = "Idempotency"
    default_auto_field = "django.db.models.BigAutoField"

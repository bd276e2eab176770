"""The Django app of audit."""

from django.apps import AppConfig


class AuditConfig(AppConfig):
    """What was done, by whom."""

    name = "control.audit"
    label = "audit"
    verbose_name = "Audit"
    default_auto_field = "django.db.models.BigAutoField"

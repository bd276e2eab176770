"""The Django app of audit."""

from django.apps import AppConfig


class AuditConfig(AppConfig):
    """What was done, by whom."""

    name = "control.audit"
    label = "audit"
    verbose_name = "Audit"
    facts = ("audit_entry", "audit_link", "audit_proof")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Record what operators view, and register the audit log's metrics."""
        from control.audit import operator_access
        from control.audit.selectors import metrics
        from control.telemetry.metrics import register

        operator_access.listen()
        register(metrics)

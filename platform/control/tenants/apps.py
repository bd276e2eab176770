"""The Django app of tenants."""

from django.apps import AppConfig

from control.operators import Duty


class TenantsConfig(AppConfig):
    """Users, organizations, projects and members."""

    name = "control.tenants"
    label = "tenants"
    verbose_name = "Tenants"
    duty = Duty.HELP_CUSTOMERS
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Hear of sign-ins, factors and passwords."""
        from control.tenants.sign_in import deeds, sessions

        deeds.listen()
        sessions.listen()

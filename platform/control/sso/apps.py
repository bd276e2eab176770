"""The Django app of single sign-on."""

from django.apps import AppConfig

from control.operators import Duty


class SsoConfig(AppConfig):
    """Identity providers of organizations, their domains, and who SCIM brought."""

    name = "control.sso"
    label = "sso"
    verbose_name = "Single sign-on"
    duty = Duty.HELP_CUSTOMERS
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Hear of organizations that end."""
        from control.sso import ending

        ending.listen()

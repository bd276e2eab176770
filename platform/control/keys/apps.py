"""The Django app of keys."""

from django.apps import AppConfig

from control.operators import Duty


class KeysConfig(AppConfig):
    """API keys."""

    name = "control.keys"
    label = "keys"
    verbose_name = "API keys"
    duty = Duty.HELP_CUSTOMERS
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Let keys end with what they belong to."""
        from control.keys import ending

        ending.listen()

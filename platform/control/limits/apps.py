"""The Django app of rate limits."""

from django.apps import AppConfig

from control.operators import Duty


class LimitsConfig(AppConfig):
    """Limit tiers, and the limits of organizations, projects and keys."""

    name = "control.limits"
    label = "limits"
    verbose_name = "Rate limits"
    duty = Duty.HELP_CUSTOMERS
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Give new organizations their place in the tiers."""
        from control.limits import placing

        placing.listen()

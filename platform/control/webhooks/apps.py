"""The Django app of webhooks."""

from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    """Endpoints of customers, and what was sent to them."""

    name = "control.webhooks"
    label = "webhooks"
    verbose_name = "Webhooks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Hear of deliveries that the outbox gives up, and of organizations that end."""
        from control.webhooks import ending, outcomes

        ending.listen()
        outcomes.listen()

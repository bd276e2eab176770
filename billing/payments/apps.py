"""The Django app of payments."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from control.permissions import Permission


class PaymentsConfig(AppConfig):
    """Stripe's customers, payments, refunds, disputes, webhooks."""

    name = "billing.payments"
    label = "payments"
    verbose_name = _("Payments")
    deliveries = "billing.payments.deliveries"
    change_permission = Permission.FINANCE_WRITE

    append_only = ("payments_redemption",)

    def ready(self) -> None:
        """Tell people what nobody sat at a screen for."""
        from billing.payments import telling

        telling.listen()

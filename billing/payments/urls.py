"""What Stripe calls."""

from django.urls import URLPattern, path

from billing.payments.views import StripeWebhook

urlpatterns: list[URLPattern] = [
    path("stripe/webhook", StripeWebhook.as_view(), name="stripe_webhook")
]

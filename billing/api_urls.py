"""Billing's part of the management API, under /api/v1/."""

from django.urls import path

from billing.alerts import api as alerts
from billing.credit.api import CreditGrants, OrganizationBalance
from billing.invoicing.api import InvoicePdf, Invoices, OneInvoice, Profile
from billing.payments import api as payments
from billing.reading import requests_api as reading
from billing.reading.api import CompatibleCosts, CompatibleUsage

ORGANIZATION = "organizations/<str:organization_id>"

urlpatterns = [
    path(f"{ORGANIZATION}/payment-methods", payments.PaymentMethods.as_view()),
    path(f"{ORGANIZATION}/payment-methods/<str:method_id>", payments.OnePaymentMethod.as_view()),
    path(f"{ORGANIZATION}/credit-purchases", payments.CreditPurchases.as_view()),
    path(
        f"{ORGANIZATION}/credit-purchases/<str:purchase_id>", payments.OneCreditPurchase.as_view()
    ),
    path(f"{ORGANIZATION}/credit-purchase-quotes", payments.CreditPurchaseQuotes.as_view()),
    path(f"{ORGANIZATION}/auto-recharge", payments.AutoRecharge.as_view()),
    path(f"{ORGANIZATION}/usage", reading.OrganizationUsage.as_view()),
    path(f"{ORGANIZATION}/costs", reading.OrganizationCosts.as_view()),
    path(f"{ORGANIZATION}/requests", reading.Requests.as_view()),
    path(f"{ORGANIZATION}/requests/<uuid:request_id>", reading.OneRequest.as_view()),
    path(f"{ORGANIZATION}/spending-limits", alerts.SpendingLimits.as_view()),
    path(f"{ORGANIZATION}/spending-limits/<str:limit_id>", alerts.OneSpendingLimit.as_view()),
    path(f"{ORGANIZATION}/alerts", alerts.Alerts.as_view()),
    path(f"{ORGANIZATION}/alert-settings", alerts.OneAlertSettings.as_view()),
    path(f"{ORGANIZATION}/invoices", Invoices.as_view()),
    path(f"{ORGANIZATION}/invoices/<str:invoice_id>", OneInvoice.as_view()),
    path(f"{ORGANIZATION}/invoices/<str:invoice_id>/pdf", InvoicePdf.as_view()),
    path(f"{ORGANIZATION}/billing-profile", Profile.as_view()),
    # OpenAI's administration clients call these; they have the same shape as usage and costs.
    path("organization/usage/completions", CompatibleUsage.as_view()),
    path("organization/costs", CompatibleCosts.as_view()),
    path("admin/organizations/<str:organization_id>/balance", OrganizationBalance.as_view()),
    path("admin/organizations/<str:organization_id>/credit-grants", CreditGrants.as_view()),
]

"""Billing's part of the management API, under /api/v1/."""

from django.urls import path

from billing.alerts.api import Alerts, Budgets, OneAlertSettings, OneBudget
from billing.credit.api import CreditGrants, OrganizationBalance
from billing.invoicing.api import InvoicePdf, Invoices, OneInvoice, Profile
from billing.payments import api as payments
from billing.reading.api import CompletionsUsage, Costs
from billing.reading.requests_api import (
    CostsCsv,
    CostsJsonl,
    OneRequest,
    RequestsCsv,
    RequestsJsonl,
)

urlpatterns = [
    path("payment-methods", payments.PaymentMethods.as_view()),
    path("payment-methods/<str:method_id>", payments.OnePaymentMethod.as_view()),
    path("top-ups", payments.TopUps.as_view()),
    path("top-up-quotes", payments.TopUpQuotes.as_view()),
    path("top-ups/<str:top_up_id>", payments.OneTopUp.as_view()),
    path("auto-top-up", payments.AutomaticTopUp.as_view()),
    path("organization/usage/completions", CompletionsUsage.as_view()),
    path("organization/costs", Costs.as_view()),
    path("organization/costs.csv", CostsCsv.as_view()),
    path("organization/costs.jsonl", CostsJsonl.as_view()),
    path("requests.csv", RequestsCsv.as_view()),
    path("requests.jsonl", RequestsJsonl.as_view()),
    path("requests/<uuid:request_id>", OneRequest.as_view()),
    path("budgets", Budgets.as_view()),
    path("budgets/<str:budget_id>", OneBudget.as_view()),
    path("alerts", Alerts.as_view()),
    path("alert-settings", OneAlertSettings.as_view()),
    path("invoices", Invoices.as_view()),
    path("invoices/<str:invoice_id>", OneInvoice.as_view()),
    path("invoices/<str:invoice_id>/pdf", InvoicePdf.as_view()),
    path("billing-profile", Profile.as_view()),
    path("admin/organizations/<str:organization_id>/balance", OrganizationBalance.as_view()),
    path("admin/organizations/<str:organization_id>/credit-grants", CreditGrants.as_view()),
]

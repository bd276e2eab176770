"""Billing's part of the management API, under /api/v1/."""

from django.urls import path

from billing.alerts import api as alerts
from billing.credit import api as credit
from billing.invoicing.api import BillingProfileDetail, InvoiceDetail, InvoiceList, InvoicePdf
from billing.payments import api as payments
from billing.reading import requests_api as reading
from billing.reading.api import CompatibleCosts, CompatibleUsage

ORGANIZATION = "organizations/<str:organization_id>"

urlpatterns = [
    path(f"{ORGANIZATION}/payment-methods", payments.PaymentMethodList.as_view()),
    path(f"{ORGANIZATION}/payment-methods/<str:method_id>", payments.PaymentMethodDetail.as_view()),
    path(f"{ORGANIZATION}/credit-purchases", payments.CreditPurchaseList.as_view()),
    path(
        f"{ORGANIZATION}/credit-purchases/<str:purchase_id>",
        payments.CreditPurchaseDetail.as_view(),
    ),
    path(f"{ORGANIZATION}/credit-purchase-quotes", payments.CreditPurchaseQuoteList.as_view()),
    path(f"{ORGANIZATION}/auto-recharge", payments.AutoRechargeDetail.as_view()),
    path(f"{ORGANIZATION}/credit-balance", credit.CreditBalanceDetail.as_view()),
    path(f"{ORGANIZATION}/credit-grants", credit.CustomerCreditGrantList.as_view()),
    path(f"{ORGANIZATION}/usage", reading.OrganizationUsage.as_view()),
    path(f"{ORGANIZATION}/costs", reading.OrganizationCosts.as_view()),
    path(f"{ORGANIZATION}/requests", reading.RequestList.as_view()),
    path(f"{ORGANIZATION}/requests/<uuid:request_id>", reading.RequestDetail.as_view()),
    path(f"{ORGANIZATION}/spending-limits", alerts.SpendingLimitList.as_view()),
    path(f"{ORGANIZATION}/spending-limits/<str:limit_id>", alerts.SpendingLimitDetail.as_view()),
    path(f"{ORGANIZATION}/alerts", alerts.AlertList.as_view()),
    path(f"{ORGANIZATION}/alert-settings", alerts.AlertSettingsDetail.as_view()),
    path(f"{ORGANIZATION}/invoices", InvoiceList.as_view()),
    path(f"{ORGANIZATION}/invoices/<str:invoice_id>", InvoiceDetail.as_view()),
    path(f"{ORGANIZATION}/invoices/<str:invoice_id>/pdf", InvoicePdf.as_view()),
    path(f"{ORGANIZATION}/billing-profile", BillingProfileDetail.as_view()),
    # OpenAI's administration clients call these; they have the same shape as usage and costs.
    path("organization/usage/completions", CompatibleUsage.as_view()),
    path("organization/costs", CompatibleCosts.as_view()),
    path(f"admin/{ORGANIZATION}/balance", credit.OrganizationBalance.as_view()),
    path(f"admin/{ORGANIZATION}/credit-grants", credit.CreditGrantList.as_view()),
]

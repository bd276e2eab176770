"""Billing's part of the management API, under /api/v1/."""

from django.urls import path

from billing.reading.api import CompletionsUsage, Costs

urlpatterns = [
    path("organization/usage/completions", CompletionsUsage.as_view()),
    path("organization/costs", Costs.as_view()),
]

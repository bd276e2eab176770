"""What the data plane calls, under /internal/v1/. Control checks the bearer secret first."""

from django.urls import path

from billing.credit.internal_api import leases
from billing.economics.internal_api import engine_counters
from billing.metering.internal_api import usage_events

urlpatterns = [
    path("leases", leases),
    path("usage-events", usage_events),
    path("engine-counters", engine_counters),
]

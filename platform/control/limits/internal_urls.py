"""What of rate limits the data plane calls, under /internal/v1/."""

from django.urls import path

from control.limits.internal_api import gateways

urlpatterns = [path("gateways", gateways)]

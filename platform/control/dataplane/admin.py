"""The operators' view of gateways."""

from django.contrib import admin

from control.admin.base import ReadOnlyAdmin
from control.dataplane.models import GatewayHeartbeat


@admin.register(GatewayHeartbeat)
class GatewayHeartbeatAdmin(ReadOnlyAdmin):
    """Gateways that are alive: without Redis each enforces its part of the rate limits."""

    list_display = ("gateway_id", "seen_at")

"""The operators' view of gateways."""

from django.contrib import admin

from control.admin.base import ReadOnlyAdmin
from control.dataplane.models import GatewayHeartbeat


@admin.register(GatewayHeartbeat)
class GatewayHeartbeatAdmin(ReadOnlyAdmin):
    """Gateways that live: without Redis each holds callers to its part of their limits."""

    list_display = ("gateway_id", "seen_at")

"""Which credential owns each gateway, and when each gateway was last heard of."""

from django.db import models
from django.utils import timezone

from control.db.models import append_only

GATEWAY_ID_MAX = 64
NAME_MAX = 40


class GatewayOwner(models.Model):
    """The name of the credential that a gateway first showed. Never changes: a gateway is created
    with its journal, and no other credential may speak for it."""

    gateway_id = models.CharField(primary_key=True, max_length=GATEWAY_ID_MAX)
    name = models.CharField(max_length=NAME_MAX)
    named_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "gateways_named"
        triggers = append_only("named")

    def __str__(self) -> str:
        return f"{self.gateway_id} of {self.name}"


class GatewayHeartbeat(models.Model):
    """When a gateway was last heard of."""

    gateway_id = models.CharField(primary_key=True, max_length=GATEWAY_ID_MAX)
    seen_at = models.DateTimeField()

    class Meta:
        app_label = "limits"
        db_table = "limits_live_gateway"

    def __str__(self) -> str:
        return self.gateway_id

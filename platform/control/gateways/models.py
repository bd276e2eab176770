"""Gateways and the names of their credentials."""

from django.db import models
from django.utils import timezone

from control.db.models import append_only

GATEWAY_ID_MAX = 64
NAME_MAX = 40


class NamedGateway(models.Model):
    """Whose a gateway is, written once: it is made with its journal and known by no other name."""

    gateway_id = models.CharField(primary_key=True, max_length=GATEWAY_ID_MAX)
    name = models.CharField(max_length=NAME_MAX)
    named_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "gateways_named"
        triggers = append_only("named")

    def __str__(self) -> str:
        return f"{self.gateway_id} of {self.name}"

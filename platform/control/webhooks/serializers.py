"""How the management API shows webhook endpoints and what was sent to them."""

from typing import Any

from rest_framework import serializers

from control.api.serializers import ClosedSerializer
from control.webhooks.kinds import KINDS
from control.webhooks.models import DESCRIPTION_MAX, URL_MAX


class NewEndpointSerializer(ClosedSerializer):
    """What makes an endpoint: an `https://` address that is reached from the internet."""

    url = serializers.CharField(max_length=URL_MAX)
    description = serializers.CharField(
        max_length=DESCRIPTION_MAX, allow_blank=True, required=False
    )
    kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=list(KINDS)), min_length=1, max_length=len(KINDS)
    )


class EndpointSerializer(NewEndpointSerializer):
    """An endpoint without its secret. `disabled_reason` is set where the platform disabled it."""

    id = serializers.CharField(read_only=True)
    organization_id = serializers.CharField(read_only=True)
    is_enabled = serializers.BooleanField(required=False)
    disabled_reason = serializers.CharField(read_only=True)
    failing_since = serializers.DateTimeField(read_only=True, allow_null=True)
    created_at = serializers.DateTimeField(read_only=True)


class CreatedEndpointSerializer(EndpointSerializer):
    """An endpoint with its secret, shown this once."""

    secret = serializers.CharField(read_only=True)


class SecretSerializer(serializers.Serializer[Any]):
    """A signing secret (Standard Webhooks), shown this once."""

    secret = serializers.CharField(read_only=True)


class DeliverySerializer(serializers.Serializer[Any]):
    """A message on its way to the endpoint; `event_id` is its `webhook-id`."""

    id = serializers.CharField()
    event_id = serializers.CharField()
    kind = serializers.CharField(source="event.kind")
    state = serializers.ChoiceField(choices=["waiting", "delivered", "failed"])
    is_repeat = serializers.BooleanField(help_text="Whether a person asked for it again.")
    attempt_count = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    delivered_at = serializers.DateTimeField(allow_null=True)
    failed_at = serializers.DateTimeField(allow_null=True)
    next_at = serializers.DateTimeField(allow_null=True)


class AttemptSerializer(serializers.Serializer[Any]):
    """One call: the status that was answered, or why there was none."""

    at = serializers.DateTimeField()
    duration_ms = serializers.IntegerField()
    status = serializers.IntegerField(allow_null=True)
    error = serializers.CharField()


class WholeDeliverySerializer(DeliverySerializer):
    """A delivery with the body that is sent and every call."""

    body = serializers.CharField(source="event.body")
    attempts = AttemptSerializer(many=True)

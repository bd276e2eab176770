"""Audit events in the management API: their fields, and the list for operators."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control.api.operator_views import OperatorApiView, OperatorSerializer
from control.audit import selectors
from control.audit.operator_access import record_operator_view, views_in_query
from control.audit.pseudonyms import NameResolver


class AuditEventFilterSerializer(OperatorSerializer):
    """Filters of audit events. The times are the first moment and the first moment after."""

    actor_id = serializers.CharField(required=False)
    action = serializers.CharField(required=False)
    target_id = serializers.CharField(required=False)
    start_time = serializers.DateTimeField(required=False)
    end_time = serializers.DateTimeField(required=False)


class AdminAuditEventFilterSerializer(AuditEventFilterSerializer):
    """The same, and filters by customer and by operator token."""

    organization_id = serializers.CharField(required=False)
    operator_token_id = serializers.CharField(required=False)


class AuditEventSerializer(OperatorSerializer):
    """An audit event. The serializer's context has the `names` of the people in it."""

    id = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    actor_kind = serializers.CharField()
    actor_id = serializers.CharField()
    actor_name = serializers.CharField()
    action = serializers.CharField()
    target_kind = serializers.CharField()
    target_id = serializers.CharField()
    target_name = serializers.CharField()
    details = serializers.JSONField()
    address = serializers.CharField(allow_null=True)
    request_id = serializers.CharField()

    def to_representation(self, event: Any) -> dict[str, Any]:
        """Return the event with the names of the people in it."""
        names: NameResolver = self.context["names"]
        shown = {
            "actor_name": names.actor(event),
            "target_name": names.target(event),
            "details": names.details(event),
        }
        return {**super().to_representation(event), **shown}


class AdminAuditEventSerializer(AuditEventSerializer):
    """An audit event. `organization_id` is empty for actions on the whole platform;
    `operator_token_id` is the operator token that the actor used."""

    organization_id = serializers.CharField()
    operator_token_id = serializers.CharField(
        source="details.operator_token", default=None, allow_null=True
    )


class AdminAuditEventList(OperatorApiView):
    """The audit events of the platform and of all customers."""

    serializer_class = AdminAuditEventSerializer
    ordering = ("-id",)

    @extend_schema(
        operation_id="admin_audit_events_list", parameters=[AdminAuditEventFilterSerializer]
    )
    def get(self, request: Request) -> Response:
        """List audit events, newest first. A list of one customer's events is a view in its audit
        log."""
        filters = self.filters(AdminAuditEventFilterSerializer)
        for view in views_in_query(request._request.GET):
            record_operator_view(self.actor, view, page="admin_audit_events_list")
        events = self.paginate_queryset(selectors.all_events(**filters)) or []
        context = {"names": NameResolver(events)}
        shown = AdminAuditEventSerializer(events, many=True, context=context).data
        return self.get_paginated_response(shown)

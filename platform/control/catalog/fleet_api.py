"""The operators' fleets in the management API."""

from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control.api.idempotency import idempotent
from control.api.operator_views import OperatorApiView, RowSerializer
from control.api.versions import versioned
from control.catalog import fleets, selectors
from control.catalog.fleet_status import fleet_status
from control.catalog.models import Fleet
from control.permissions import Permission


class FleetChangesSerializer(RowSerializer):
    """Changes of a fleet, whose id stays."""

    class Meta:
        model = Fleet
        fields: tuple[str, ...] = ("name", "region")


class FleetSerializer(FleetChangesSerializer):
    """A fleet. `generation` grows with each start of its process, the last time at `registered_at`.
    `heard_at` is when that process last called: `state` is `silent` after 10 seconds without a
    call. `replica_count` is how many replicas of its deployments there are, null while that is
    unknown."""

    state = serializers.SerializerMethodField()
    replica_count = serializers.SerializerMethodField()

    class Meta(FleetChangesSerializer.Meta):
        fields = (
            *("id", "name", "region", "state", "generation", "registered_at", "heard_at"),
            *("replica_count", "created_at"),
        )
        read_only_fields = ("generation", "registered_at", "heard_at", "created_at")

    @extend_schema_field(serializers.ChoiceField(fleets.FleetState.choices))
    def get_state(self, fleet: Fleet) -> str:
        """Return whether its process is heard."""
        return fleets.state(fleet, now=timezone.now())

    @extend_schema_field(serializers.IntegerField(allow_null=True))
    def get_replica_count(self, fleet: Fleet) -> int | None:
        """Return how many replicas there are."""
        status = fleet_status()
        if not status.is_known(fleet.id):
            return None
        return sum(len(status.of(each)) for each in selectors.deployment_ids(fleet))


class FleetList(OperatorApiView):
    """All fleets."""

    serializer_class = FleetSerializer
    write_permission = Permission.CATALOG_WRITE

    @extend_schema(operation_id="admin_fleets_list")
    def get(self, request: Request) -> Response:
        """List fleets, newest first."""
        return self.filtered_page(selectors.fleets())

    @idempotent
    @extend_schema(operation_id="admin_fleets_create", responses={201: FleetSerializer})
    def post(self, request: Request) -> Response:
        """Add a fleet. Its processes name it by its id, in PENSTOCK_FLEET_ID."""
        values = FleetSerializer.read(request.data)
        return self.shown(fleets.create_fleet(actor=self.actor, **values), status=201)


@versioned(FleetChangesSerializer)
class FleetDetail(OperatorApiView):
    """One fleet."""

    serializer_class = FleetSerializer
    write_permission = Permission.CATALOG_WRITE

    @extend_schema(operation_id="admin_fleets_retrieve")
    def get(self, request: Request, fleet_id: str) -> Response:
        """Retrieve a fleet."""
        return self.shown(selectors.fleet(fleet_id))

    @extend_schema(operation_id="admin_fleets_update", request=FleetChangesSerializer)
    def patch(self, request: Request, fleet_id: str) -> Response:
        """Change a fleet, all or nothing. Gateways apply a new region within a second."""
        changes = FleetChangesSerializer.read(request.data, partial=True)
        fleet = selectors.fleet(fleet_id)
        return self.shown(fleets.update_fleet(actor=self.actor, fleet=fleet, changes=changes))

    @extend_schema(operation_id="admin_fleets_delete", responses={204: None})
    def delete(self, request: Request, fleet_id: str) -> Response:
        """Delete a fleet that has no deployments, not even ended ones."""
        fleets.delete_fleet(actor=self.actor, fleet=selectors.fleet(fleet_id))
        return Response(status=204)

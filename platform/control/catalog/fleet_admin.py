"""The operators' pages of fleets."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from control.admin.base import OperatorAdmin, ReadOnlyInline
from control.catalog import fleets, selectors
from control.catalog.fleet_status import fleet_status
from control.catalog.models import Deployment, Fleet
from control.permissions import Actor


class DeploymentInline(ReadOnlyInline):
    """The deployments of a fleet."""

    model = Deployment
    fields = ("variant", "engine", "replicas_min", "ended_at")
    hide_title = False
    show_change_link = True


@admin.register(Fleet)
class FleetAdmin(OperatorAdmin):
    """Fleets."""

    list_display = ("name", "id", "region", "state", "generation", "registered_at", "replicas")
    fields = (
        *("id", "name", "region", "state", "generation", "registered_at", "heard_at", "replicas"),
    )
    readonly_fields = ("state", "generation", "registered_at", "heard_at", "replicas")
    inlines = (DeploymentInline,)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep the id of an existing fleet."""
        return (*self.readonly_fields, *(("id",) if obj else ()))

    def add_row(self, actor: Actor, values: dict[str, Any]) -> Fleet:
        return fleets.create_fleet(actor=actor, **values)

    def change_row(self, actor: Actor, row: Fleet, changes: dict[str, Any]) -> Fleet:
        return fleets.update_fleet(actor=actor, fleet=row, changes=changes)

    @admin.display(description=_("State"))
    def state(self, row: Fleet) -> str:
        """Return whether it is heard and found at its address, and what to do where it is not."""
        text = fleets.state_text(row, now=timezone.now())
        found = fleet_status().generations.get(row.id, row.generation)
        if found >= row.generation:
            return text
        return f"{text.rstrip('.')}. " + gettext(
            "At the address in PENSTOCK_FLEET_URL an older process responds, of generation "
            "{found}, which starts and ends nothing. Change the address."
        ).format(found=found)

    @admin.display(description=_("Replicas"))
    def replicas(self, row: Fleet) -> str:
        """Return the number of its replicas in each state."""
        return fleet_status().summary(row.id, *selectors.deployment_ids(row))

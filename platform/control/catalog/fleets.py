"""Fleets: what operators set of them, and their lives, of which only the newest is heard."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import structlog
from django.db import transaction

from control.audit import services as audit
from control.catalog import selectors
from control.catalog.feed import deployment_record
from control.catalog.models import Fleet
from control.db.row_changes import apply_changes, create_row, snapshot
from control.errors import Conflict, InvalidValue, NotPermitted
from control.feed.services import publish
from control.permissions import Actor, Permission, require_operator
from serving.contract.fleet import (
    SUPERSEDED,
    FleetGeneration,
    FleetHeartbeat,
    FleetRegistration,
)

FLEET_FIELDS = frozenset({"name", "region"})

log = structlog.get_logger(__name__)


@transaction.atomic
def create_fleet(*, actor: Actor, id: str, name: str, region: str = "") -> Fleet:
    """Add a fleet, whose processes name it by its id (`PENSTOCK_FLEET_ID`)."""
    require_operator(actor, Permission.CATALOG_WRITE)
    fleet = Fleet(id=id, name=name, region=region)
    create_row(fleet)
    audit.record_about(actor, "fleet.created", fleet, **snapshot(fleet, FLEET_FIELDS))
    return fleet


@transaction.atomic
def update_fleet(*, actor: Actor, fleet: Fleet, changes: Mapping[str, Any]) -> Fleet:
    """Change the name or the region of a fleet; a new region applies to its deployments at once."""
    require_operator(actor, Permission.CATALOG_WRITE)
    for field in changes.keys() - FLEET_FIELDS:
        raise InvalidValue(f"{field} cannot be set.", param=field, code="unknown_parameter")
    fleet = selectors.locked_fleet(fleet.id)
    if differences := apply_changes(fleet, changes):
        audit.record_about(actor, "fleet.updated", fleet, **differences)
        if "region" in differences["after"]:
            own = selectors.live_deployments().filter(fleet=fleet)
            publish(deployment_record(each) for each in own)
    return fleet


@transaction.atomic
def delete_fleet(*, actor: Actor, fleet: Fleet) -> None:
    """Delete a fleet. Raises Conflict while deployments refer to it, ended ones too."""
    require_operator(actor, Permission.CATALOG_WRITE)
    fleet = selectors.locked_fleet(fleet.id)
    if fleet.deployments.exists():
        raise Conflict(f"{fleet} has deployments. Delete them first.", code="referenced")
    audit.record_about(actor, "fleet.deleted", fleet)
    fleet.delete()


@transaction.atomic
def register(credential_name: str, told: FleetRegistration, *, now: datetime) -> FleetGeneration:
    """Grant a life of a fleet the next generation, or again the one that it has.

    The fleet belongs to the credential that registers first. Raises ObjectNotFound, and
    NotPermitted for another credential.
    """
    fleet = _own(credential_name, told.fleet_id)
    if fleet.instance_id != told.instance_id:
        fleet.instance_id, fleet.credential_name = told.instance_id, credential_name
        fleet.generation = max(fleet.generation, told.last_generation) + 1
        log.info("fleet_registered", fleet_id=fleet.id, generation=fleet.generation)
    fleet.heard_at = now
    fleet.save(update_fields=["instance_id", "credential_name", "generation", "heard_at"])
    return FleetGeneration(fleet.generation)


@transaction.atomic
def record_heartbeat(
    credential_name: str, told: FleetHeartbeat, *, now: datetime
) -> FleetGeneration:
    """Record that a fleet's newest life goes on. Raises as `register`, and Conflict for another
    generation than that."""
    fleet = _own(credential_name, told.fleet_id)
    if told.generation != fleet.generation or not fleet.instance_id:
        log.warning("fleet_superseded", fleet_id=fleet.id, generation=told.generation)
        words = f"{fleet.id} is at generation {fleet.generation}, not {told.generation}."
        raise Conflict(words, code=SUPERSEDED)
    fleet.heard_at = now
    fleet.save(update_fields=["heard_at"])
    return FleetGeneration(fleet.generation)


def _own(credential_name: str, fleet_id: str) -> Fleet:
    """Return a fleet with its row locked. Raises ObjectNotFound and NotPermitted."""
    fleet = selectors.locked_fleet(fleet_id)
    if fleet.credential_name not in ("", credential_name):
        raise NotPermitted(f"{fleet_id} is the fleet of another credential than {credential_name}.")
    return fleet

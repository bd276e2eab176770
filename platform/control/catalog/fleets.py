"""Fleets: what operators set of them, and their lives, of which only the newest is heard."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import models, transaction
from django.utils.timesince import timesince
from django.utils.translation import gettext

from control.audit import services as audit
from control.catalog import selectors
from control.catalog.feed import deployment_record
from control.catalog.models import Fleet
from control.db.row_changes import apply_changes, create_row, snapshot
from control.errors import Conflict, InvalidValue, NotPermitted
from control.feed.services import publish
from control.permissions import Actor, Permission, require_operator
from serving.contract.fleet import (
    SILENT_SECONDS,
    SUPERSEDED,
    FleetGeneration,
    FleetHeartbeat,
    FleetRegistration,
)


class FleetState(models.TextChoices):
    """Whether the newest life of a fleet is heard; one without a heartbeat for 10 seconds is
    silent."""

    NEVER_REGISTERED = "never_registered"
    ACTIVE = "active"
    SILENT = "silent"


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
    """Grant a life of a fleet a generation above all before.

    The fleet belongs to the credential that registers first. Raises ObjectNotFound, and
    NotPermitted for another credential.
    """
    fleet = _own(credential_name, told.fleet_id)
    generation = max(fleet.generation, told.last_generation) + 1
    _take_over(fleet, credential_name, told.instance_id, generation, now)
    return FleetGeneration(generation)


@transaction.atomic
def record_heartbeat(
    credential_name: str, told: FleetHeartbeat, *, now: datetime
) -> FleetGeneration:
    """Record that a fleet goes on in the folder that registered last. Raises as `register`, and
    Conflict for another folder."""
    fleet = _own(credential_name, told.fleet_id)
    if told.generation > fleet.generation:
        # This database was restored from an earlier day: the fleet has been granted more since.
        _take_over(fleet, credential_name, told.instance_id, told.generation, now)
    elif told.instance_id != fleet.instance_id:
        log.warning("fleet_superseded", fleet_id=fleet.id, generation=told.generation)
        raise Conflict(
            f"{fleet.id} has generation {fleet.generation} in another folder or on another host.",
            code=SUPERSEDED,
        )
    else:
        fleet.heard_at = now
        fleet.save(update_fields=["heard_at"])
    return FleetGeneration(fleet.generation)


def state(fleet: Fleet, *, now: datetime) -> FleetState:
    """Return whether a fleet's newest life is heard."""
    if fleet.heard_at is None:
        return FleetState.NEVER_REGISTERED
    is_silent = now - fleet.heard_at > timedelta(seconds=SILENT_SECONDS)
    return FleetState.SILENT if is_silent else FleetState.ACTIVE


def state_text(fleet: Fleet, *, now: datetime) -> str:
    """Return the same in words, with what to do about it."""
    match state(fleet, now=now):
        case FleetState.ACTIVE:
            return gettext("Active")
        case FleetState.SILENT:
            since = timesince(fleet.heard_at or now, now)
            return gettext(
                "Silent for {duration}. Its replicas go on, but none may be started or replaced. "
                "See that its process runs and reaches control."
            ).format(duration=since)
        case _:
            return gettext("Never registered. Start a process with PENSTOCK_FLEET_ID={id}.").format(
                id=fleet.id
            )


def _take_over(
    fleet: Fleet, credential_name: str, instance_id: str, generation: int, now: datetime
) -> None:
    """Make the folder that calls the owner of a fleet."""
    fleet.credential_name, fleet.instance_id = credential_name, instance_id
    fleet.generation = generation
    fleet.registered_at = fleet.heard_at = now
    fleet.save(
        update_fields=["credential_name", "instance_id", "generation", "registered_at", "heard_at"]
    )
    log.info("fleet_registered", fleet_id=fleet.id, generation=generation)


def _own(credential_name: str, fleet_id: str) -> Fleet:
    """Return a fleet with its row locked. Raises ObjectNotFound and NotPermitted."""
    fleet = selectors.locked_fleet(fleet_id)
    if fleet.credential_name not in ("", credential_name):
        raise NotPermitted(f"{fleet_id} is the fleet of another credential than {credential_name}.")
    return fleet

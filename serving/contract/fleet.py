"""What a fleet and control tell each other of the fleet's lives.

A fleet owns its deployments' replicas. Each of its lives has a generation, granted by control when
it registers; a life that learns of a newer one starts nothing and ends nothing. A call of an older
life is answered with 409 and the code `fleet_superseded`.

The lineage of a replica feed begins with the generation of the life that states it, so that a
gateway follows no older life than the newest it has seen."""

import msgspec

from serving.contract.units import Count, Id

SUPERSEDED = "fleet_superseded"
"""The code of a refusal: another life of the fleet has registered since."""
SILENT_SECONDS = 10.0
"""Without a heartbeat for this long a fleet is silent."""


class FleetRegistration(msgspec.Struct, frozen=True):
    """A life of a fleet begins. `instance_id` names the folder that it has locked, so that no two
    lives of one instance overlap; `last_generation` is the highest that the fleet's state on disk
    knows, since control's database may have been restored from an earlier day."""

    fleet_id: Id
    instance_id: Id
    last_generation: Count = 0


class FleetHeartbeat(msgspec.Struct, frozen=True):
    """A life of a fleet goes on."""

    fleet_id: Id
    instance_id: Id
    generation: Count


class FleetGeneration(msgspec.Struct, frozen=True):
    """The generation of the life that registered last."""

    generation: Count


def feed_lineage(generation: int, run_id: str) -> str:
    """Return the lineage of the feed of a life, such as `g7-0190…`; `run_id` names the process."""
    return f"g{generation}-{run_id}"


def generation_of(lineage: str) -> int:
    """Return the generation of the life whose feed has a lineage; 0 where it states none."""
    number = lineage.partition("-")[0].removeprefix("g")
    is_stated = lineage.startswith("g") and number.isascii() and number.isdigit()
    return int(number) if is_stated else 0

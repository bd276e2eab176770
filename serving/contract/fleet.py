"""What a fleet and control tell each other of the fleet's lives.

A fleet owns its deployments' replicas. Each of its lives has a generation, granted by control when
it registers; a life that learns of a newer one starts nothing and ends nothing. A call of an older
life is answered with 409 and the code `fleet_superseded`."""

import msgspec

from serving.contract.units import Count, Id

SUPERSEDED = "fleet_superseded"
"""The code of a refusal: another life of the fleet has registered since."""


class FleetRegistration(msgspec.Struct, frozen=True):
    """A life of a fleet begins. `instance_id` is its own, the same when the call is repeated;
    `last_generation` is the highest that the fleet's state on disk knows, since control's database
    may have been restored from an earlier day."""

    fleet_id: Id
    instance_id: Id
    last_generation: Count = 0


class FleetHeartbeat(msgspec.Struct, frozen=True):
    """A life of a fleet goes on."""

    fleet_id: Id
    generation: Count


class FleetGeneration(msgspec.Struct, frozen=True):
    """The generation of the life that registered last."""

    generation: Count

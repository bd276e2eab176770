"""All deeds by their kind."""

import random
from collections.abc import Callable

from tests.simulation.cast import Cast, Prepared
from tests.simulation.deeds import beat, credit, gateways, invoices, limits, payments
from tests.simulation.plan import Deed

DEEDS: dict[str, Callable[[Cast, Deed, random.Random, str], Prepared | None]] = {
    **gateways.DEEDS,
    **credit.DEEDS,
    **limits.DEEDS,
    **beat.DEEDS,
    **invoices.DEEDS,
    **payments.DEEDS,
}


def prepare(cast: Cast, deed: Deed, name: str) -> Prepared | None:
    """Return the call that a deed is; None where it is none, or there is nothing to do."""
    rng = random.Random(deed.salt)
    return DEEDS[deed.kind](cast, deed, rng, name)

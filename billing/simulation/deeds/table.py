"""All deeds by their kind."""

import random
from collections.abc import Callable

from billing.simulation.cast import Cast, Prepared
from billing.simulation.deeds import beat, credit, gateways, invoices, limits, payments
from billing.simulation.plan import Deed

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
    rng = random.Random(deed.salt)  # noqa: S311
    return DEEDS[deed.kind](cast, deed, rng, name)

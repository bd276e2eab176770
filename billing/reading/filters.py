"""What usage can be grouped and filtered by: who called, and what was sold."""

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Literal

from billing.reading.sums import Usage

Dimension = Literal["project", "key", "model", "variant", "price", "tier", "endpoint"]

COLUMN: dict[Dimension, str] = {
    "project": "caller.project_id",
    "key": "caller.key_id",
    "model": "supply.model_id",
    "variant": "supply.variant_id",
    "price": "supply.price_id",
    "tier": "supply.tier",
    "endpoint": "supply.endpoint",
}
"""The column that holds a dimension, in a query that joins `caller` and `supply`."""
# An array is looked up in an index, where a join would walk through everybody else's rows.
CHOSEN_CALLERS = """caller_id = ANY(ARRAY(
    SELECT caller.id FROM metering_caller AS caller
    WHERE caller.organization_id = %(organization_id)s AND {}
))"""
CHOSEN_SUPPLIES = """supply_id = ANY(ARRAY(
    SELECT supply.id FROM metering_supply AS supply WHERE {}
))"""


@dataclass(frozen=True, slots=True)
class UsageFilters:
    """Only usage of these; an empty tuple means any."""

    project_ids: tuple[str, ...] = ()
    key_ids: tuple[str, ...] = ()
    model_ids: tuple[str, ...] = ()
    variant_ids: tuple[str, ...] = ()
    price_ids: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()

    @property
    def are_empty(self) -> bool:
        """Whether all usage passes."""
        return not self.parameters()

    def parameters(self) -> dict[str, list[str]]:
        """Return the values asked for, by the names that `conditions` gives them."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: list(wanted) for name, wanted in values.items() if wanted}

    def condition(self) -> str:
        """Return the filter as SQL over `caller_id` and `supply_id`, which rollups and events
        share; its parameters are named `organization_id` and like the fields."""
        wanted = [f"{COLUMN[DIMENSION[name]]} = ANY(%({name})s)" for name in self.parameters()]
        callers = [one for one in wanted if one.startswith("caller.")]
        supplies = [one for one in wanted if one.startswith("supply.")]
        chosen = [
            CHOSEN_CALLERS.format(" AND ".join(callers)) if callers else "",
            CHOSEN_SUPPLIES.format(" AND ".join(supplies)) if supplies else "",
        ]
        return " AND ".join(filter(None, chosen)) or "TRUE"

    def admit(self, event: Usage) -> bool:
        """Tell whether a request that is no row of the database passes."""
        return all(
            attrgetter(COLUMN[DIMENSION[name]])(event) in wanted
            for name, wanted in self.parameters().items()
        )

    def lookups(self) -> dict[str, Any]:
        """Return the same as keyword arguments of a query of events."""
        return {
            COLUMN[DIMENSION[name]].replace(".", "__") + "__in": wanted
            for name, wanted in self.parameters().items()
        }


DIMENSION: dict[str, Dimension] = {
    "project_ids": "project",
    "key_ids": "key",
    "model_ids": "model",
    "variant_ids": "variant",
    "price_ids": "price",
    "tiers": "tier",
    "endpoints": "endpoint",
}
"""The dimension that a filter chooses from."""
EVERYTHING = UsageFilters()

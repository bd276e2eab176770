"""What the double knows: Stripe's objects, made of the published samples, and what moved."""

import copy
import json
import time
from pathlib import Path
from typing import Any

from tests.simulation.stripe_double.cards import Card
from tests.simulation.stripe_double.errors import missing

SAMPLES = json.loads((Path(__file__).parent / "samples.json").read_text())
Thing = dict[str, Any]
PREFIX = {
    "customer": "cus",
    "payment_method": "pm",
    "setup_intent": "seti",
    "payment_intent": "pi",
    "checkout.session": "cs_test",
    "charge": "ch",
    "refund": "re",
    "dispute": "dp",
    "balance_transaction": "txn",
    "event": "evt",
}


class StripeBooks:
    """Objects by id, of one mode, and the events of every change."""

    def __init__(self, *, is_live: bool = False) -> None:
        self.is_live = is_live
        self.things: dict[str, Thing] = {}
        self.cards: dict[str, Card] = {}
        self.events: list[Thing] = []
        self.count = 0
        self.clock = time.time

    def make(self, kind: str, **values: Any) -> Thing:
        """Add an object of a kind: the sample with these values."""
        self.count += 1
        thing = copy.deepcopy(SAMPLES[kind])
        thing.update(id=f"{PREFIX[kind]}_{self.count:08d}", created=int(self.clock()), metadata={})
        if "livemode" in thing:
            thing["livemode"] = self.is_live
        thing.update(values)
        self.things[thing["id"]] = thing
        return thing

    def get(self, kind: str, thing_id: str | None) -> Thing:
        """Return an object of a kind. Raises ApiError as Stripe would."""
        thing = self.things.get(thing_id or "")
        if thing is None or thing["object"] != kind:
            raise missing(kind, str(thing_id))
        return thing

    def all(self, kind: str) -> list[Thing]:
        """Return all objects of a kind, newest first."""
        return [each for each in reversed(self.things.values()) if each["object"] == kind]

    def tell(self, kind: str, thing: Thing) -> Thing:
        """Make the event of a change."""
        event = copy.deepcopy(SAMPLES["event"])
        self.count += 1
        event.update(
            id=f"evt_{self.count:08d}",
            type=kind,
            created=int(self.clock()),
            livemode=self.is_live,
            data={"object": copy.deepcopy(thing)},
        )
        self.events.append(event)
        return event

    def move(self, kind: str, cents: int, source: Thing, **values: Any) -> Thing:
        """Write a balance transaction."""
        return self.make(
            "balance_transaction",
            type=kind,
            amount=cents,
            net=cents,
            currency=source["currency"],
            source=source["id"],
            reporting_category=kind,
            description=None,
            **values,
        )

    def expanded(self, thing: Thing, paths: list[str]) -> Thing:
        """Return a copy of an object with what is asked for in place of its ids."""
        found = copy.deepcopy(thing)
        for path in paths:
            at: Any = found
            *heads, last = path.split(".")
            for head in heads:
                at = at[head]
            for each in at if isinstance(at, list) else [at]:
                if isinstance(each.get(last), str):
                    each[last] = copy.deepcopy(self.things[each[last]])
        return found

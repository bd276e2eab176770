"""A few days of a small platform: customers, replicas that cost and count, alarms of each kind."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from billing.economics.judging import judge_missed_hours
from billing.metering.alarms import OPERATOR, raise_alarms
from billing.metering.ingest import ingest
from control.prices.models import Price
from tests.support.engines import make_sample, send
from tests.support.organizations import make_deployment
from tests.support.usage import Customer, make_batch, make_customer, make_event, make_price, roll_up

HOURS = 30
COST_NANOS = 900_000


@dataclass(frozen=True)
class Replica:
    """A replica of a deployment of a price's variant, and who uses it."""

    replica_id: str
    deployment_id: str
    price: Price
    customers: tuple[Customer, ...]


def make_earnings(now: datetime) -> list[Customer]:
    """Book usage of three customers on three replicas, one of them sampled by nobody; judge it."""
    begin = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS)
    customers = [make_customer(name) for name in ("Acme Robotics", "Globex GmbH", "Initech")]
    small, large = (make_price(name, at=now) for name in ("penstock-small", "penstock-large"))
    cheap = make_deployment(small.variant, hourly_cost_nanos=COST_NANOS).id
    dear = make_deployment(large.variant, hourly_cost_nanos=COST_NANOS * 3).id
    replicas = [
        Replica("rep_small_1", cheap, small, tuple(customers)),
        Replica("rep_large_1", dear, large, tuple(customers[:2])),
        Replica("rep_unknown", dear, large, tuple(customers[2:])),
    ]
    for replica in replicas:
        serve(replica, begin, now)
    for replica in replicas[:2]:
        sample(replica, begin)
    roll_up()
    raise_alarms(
        {
            (OPERATOR, "dead_letter"): 1,
            (OPERATOR, "duplicate_event"): 1_204,
            (OPERATOR, "late_follower_rollups"): 3,
            (customers[0].id, "unknown_price"): 2,
            (customers[1].id, "superseded_price"): 40,
        },
        now=now,
    )
    ingest(make_batch([b"7"]), now=now)
    judge_missed_hours(now=now)
    return customers


def serve(replica: Replica, begin: datetime, now: datetime) -> None:
    """Book an event of each customer in each hour, the second one's cut short."""
    events = [
        make_event(
            customer,
            replica.price,
            received_at=begin + timedelta(hours=hour, minutes=5 + place),
            replica_id=replica.replica_id,
            deployment_id=replica.deployment_id,
            outcome="client_cancelled" if place else "completed",
        )
        for hour in range(HOURS)
        for place, customer in enumerate(replica.customers)
    ]
    assert ingest(make_batch(events), now=now).accepted == len(events)


def sample(replica: Replica, begin: datetime) -> None:
    """Report what the engine counted each hour: in every seventh far too much."""
    requests = len(replica.customers)
    samples = []
    for hour in range(1, HOURS + 1):
        extra = 5_000 * (hour // 7)
        samples.append(
            make_sample(
                0,
                replica.replica_id,
                deployment_id=replica.deployment_id,
                started_at=begin,
                at=begin + timedelta(hours=hour),
                input_tokens=1_000 * requests * hour,
                output_tokens=20 * requests * hour + extra,
                requests=requests * hour,
                ready_seconds=3_500 * hour,
                busy_seconds=1_500 * hour,
            )
        )
    send(*samples)

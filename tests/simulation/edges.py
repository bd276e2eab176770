"""The edges of what may be granted, returned, recalled and refunded, tried to the nano and to the
moment, with nobody beside it: what is asked at an edge has one right answer."""

import itertools
import random
from datetime import timedelta
from typing import Any

import msgspec
import psycopg

from billing.credit.models import GrantKind
from billing.credit.services.adjustments import HeldByGateways, refund, refund_or_recall
from billing.credit.services.grants import expire_grants, reverse_grant
from billing.credit.services.leases import void_abandoned_leases
from billing.metering.ingest import ingest
from control.errors import Conflict, ServiceError
from serving.contract.lease import LeaseAsk, LeaseDeferral, LeaseDenial, LeaseGrant, LeaseReturn
from serving.contract.price import worst_case_nanos
from serving.contract.usage import LeaseCharge, UsageBatch, UsageEvent
from tests.simulation.ahead import check_ahead
from tests.simulation.cast import OPERATOR, Cast, Transfer, Wish
from tests.simulation.deeds.credit import make_grant
from tests.simulation.deeds.gateways import hear_receipt
from tests.simulation.edge import BUDGET, Edge
from tests.simulation.odd import write_misfit
from tests.simulation.oracle import due, most_nanos, require
from tests.simulation.world import BAND

PLENTY, PLENTY_SHARE = 6_000_006, 0.5
"""What somebody is given for a while, and how often: who has plenty owes nothing."""
PROMPTS = (1, BAND - 1, BAND, BAND + 1, 4096)
"""Bytes on both sides of where a band begins, and of a model's context in tokens."""
VOIDED = "SELECT voided_at FROM credit_lease WHERE id = %s"
OVERRUNS = """
SELECT coalesce(sum(count), 0)::bigint FROM metering_tally
WHERE kind = 'lease_overrun' AND organization_id = %s
"""
PAID = """
SELECT -coalesce(sum(nanos), 0)::bigint FROM ledger_entry AS entry
JOIN credit_grant AS made ON made.account_id = entry.account_id
WHERE made.organization_id = %s AND kind = 'prepaid' AND reversed_at IS NULL
    AND (expires_at IS NULL OR expires_at > %s)
"""
OPEN_GRANTS = """
SELECT id FROM credit_grant WHERE expires_at <= %s AND closed_at IS NULL ORDER BY id
"""
ENDED = """
SELECT -coalesce(sum(nanos), 0)::bigint, max(expired_nanos) FROM credit_grant AS made
JOIN ledger_entry AS entry ON entry.account_id = made.account_id
WHERE made.organization_id = %s AND idempotency_key = %s
"""
UNFOLLOWED = """
/* What was charged that the ledger does not hold. */
SELECT posted_nanos - funded_nanos - (
    SELECT coalesce(sum(nanos), 0) FROM ledger_entry JOIN ledger_account AS account
    ON account.id = account_id WHERE organization_id = %s
        AND account.kind IN ('customer_balance', 'promotional_credit', 'accounts_receivable')
)::bigint FROM credit_budget WHERE budget_id = 'balance:' || %s
"""
PREPAID = "SELECT id FROM organizations_organization WHERE billing_mode = 'prepaid' ORDER BY id"
UNKNOWN = {
    "balance:nobody": "credit_balance_exhausted",
    "balance:": "credit_balance_exhausted",
    "balance:org_0:day": "credit_balance_exhausted",
    "limit:org_none": "organization_spend_limit_exceeded",
    "limit:proj_none:day": "project_spend_limit_exceeded",
    "limit:key_none:week": "key_budget_exceeded",
    "limit:org_0:year": "credit_balance_exhausted",
    "limit:org_0:": "credit_balance_exhausted",
    "limits:org_0": "credit_balance_exhausted",
    "nonsense": "credit_balance_exhausted",
}
"""Budgets that there are not, and as what they are refused."""
MICROSECOND = timedelta(microseconds=1)


def check_edges(cast: Cast, monitor: psycopg.Connection, rng: random.Random) -> None:
    """Raises BrokenError where something at an edge is not as it must be."""
    _check_ends(cast, monitor)
    check_ahead(cast, monitor)
    _check_unknown(cast, monitor)
    _check_holds(cast)
    prepaid = [owner for (owner,) in monitor.execute(PREPAID)]
    if prepaid and rng.random() < PLENTY_SHARE:
        edge = Edge(cast, monitor, rng.choice(prepaid))
        plenty = edge.give(PLENTY * cast.world.scale - min(_left(edge), 0), "plenty")
        _check_sizes(edge)
        _check_recalls(edge)
        _check_returns(edge)
        _check_overdrawn(edge)
        _check_settled(edge)
        _check_abandoned(edge)
        _check_refunds(edge)
        reverse_grant(actor=OPERATOR, grant_id=plenty, reason="edge", now=cast.now)


def check_last_ends(cast: Cast, monitor: psycopg.Connection) -> None:
    """Credit that ends now is taken back now, where all usage is followed. Raises BrokenError."""
    _end_now(cast, "last")
    expire_grants(now=cast.now)
    left = monitor.execute(OPEN_GRANTS, [cast.now]).fetchall()
    require(not left, "Credit ends at its very moment", *left)


def _left(edge: Edge) -> int:
    row = edge.monitor.execute(BUDGET, [edge.budget_id]).fetchone()
    return 0 if row is None else int(row[0])


def _check_ends(cast: Cast, monitor: psycopg.Connection) -> None:
    """Credit that ends now pays no debt any more, and is taken back an hour later at most."""
    _end_now(cast, "ends")
    expire_grants(now=cast.now)
    for owner in cast.world.organization_ids:
        left, expired = monitor.execute(ENDED, [owner, f"ends {owner}"]).fetchone() or (0, 0)
        (unfollowed,) = monitor.execute(UNFOLLOWED, [owner, owner]).fetchone() or (0,)
        is_kept = left == min(left + expired, max(unfollowed, 0))
        require(is_kept, "Credit waits for what is on its way", owner, left, expired, unfollowed)
    cast.world.clock.advance(3600)
    due_now = cast.now - timedelta(hours=1)
    expire_grants(now=cast.now)
    left = monitor.execute(OPEN_GRANTS, [due_now]).fetchall()
    require(not left, "Credit that ended an hour ago waits for nothing on its way", *left)


def _end_now(cast: Cast, name: str) -> None:
    for owner in cast.world.organization_ids:
        key = f"{name} {owner}"
        wish = cast.wishes[key] = Wish(owner, GrantKind.PROMOTIONAL, 7, cast.now)
        make_grant(key, wish, cast.now)


def _check_unknown(cast: Cast, monitor: psycopg.Connection) -> None:
    """Of a budget that there is not, nothing is left."""
    edge = Edge(cast, monitor, cast.world.organization_ids[0])
    for name, code in UNKNOWN.items():
        (said,) = edge.ask(1, 1, budget_id=name).answers
        wanted = LeaseDenial(said.ask_id, name, code, 0, False)  # type: ignore[arg-type]
        require(said == wanted, "What there is not is refused", name, said)


def _check_holds(cast: Cast) -> None:
    """What a gateway holds is the most that a request can cost, in the band that it can reach."""
    bands = cast.world.schedule(cast.now)
    for prompt, output, choices in itertools.product(PROMPTS, (0, 1, 77), (1, 3)):
        held = worst_case_nanos(
            bands, input_tokens_max=prompt, output_tokens_max=output, choices=choices
        )
        most = most_nanos(bands, prompt, output * choices)
        require(held == most, "The most that a request can cost is held", prompt, output, held)


def _check_sizes(edge: Edge) -> None:
    """What is granted is ten minutes' spend, a minute's, or the need, by how much is left."""
    left = edge.left()
    hour = left // 6
    for need, want in (
        (1, hour), (1, hour + 1), (hour, 1), (1, left), (1, left + 1), (left, 1), (left, left),
        (left, left + 1), (1, 7), (hour + 5, hour + 1),
    ):  # fmt: skip
        given = edge.granted(need, want)
        wanted = _size(need, want, left)
        require(given.granted_nanos == wanted, "A lease is sized by what is left", need, want, left,
                given.granted_nanos)  # fmt: skip
        require(edge.pending() == wanted, "What is leased is pending", given)
        edge.close(given.lease_id)
        require(edge.left() == left, "What is given back is there again", given)
    (said,) = edge.ask(left + 1, 1).answers
    _check_refused(edge, said, left=left, recalls=False)


def _size(need: int, want: int, left: int) -> int:
    if want <= left // 6:
        return max(need, want)
    return max(need, want // 10) if want <= left else need


def _check_refused(edge: Edge, said: object, *, left: int, recalls: bool) -> None:
    is_refused = isinstance(said, LeaseDenial) and said == LeaseDenial(
        said.ask_id, edge.budget_id, "credit_balance_exhausted", left, recalls, edge.limit()
    )
    require(is_refused, "A refusal says what is left, and whether to ask again", said, left)


def _check_recalls(edge: Edge) -> None:
    """Refused, what lies idle with others is recalled, as long as it admits; asked again, a lease
    is answered as it was granted, to its own gateway and of its own budget."""
    now, left = edge.cast.now, edge.left()
    (said,) = edge.ask(left, left, ask_id=f"edge {edge.owner}").answers
    require(isinstance(said, LeaseGrant), "All that is left can be granted", said, left)
    assert isinstance(said, LeaseGrant)
    (other,) = edge.ask(1, 1).answers
    _check_refused(edge, other, left=0, recalls=False)
    late = LeaseAsk(f"late {edge.owner}", edge.budget_id, 1, 1, said.admits_until)
    (other,) = edge.poll("edge_b", [late], now=said.admits_until).answers
    _check_refused(edge, other, left=0, recalls=False)
    require(edge.lease(said.lease_id)[1] is None, "What is over is not recalled", said)
    (other,) = edge.ask(1, 1, gateway="edge_b").answers
    _check_refused(edge, other, left=0, recalls=True)
    require(edge.lease(said.lease_id)[1] == now, "What lies idle is recalled", said)
    ask = LeaseAsk(f"edge {edge.owner}", edge.budget_id, 5, 5, now)
    (again,) = edge.poll("edge_a", [ask]).answers
    require(again == said, "Asked again, a lease is answered as it was granted", said, again)
    (other,) = edge.poll("edge_b", [ask]).answers
    require(isinstance(other, LeaseDeferral), "A lease is its own gateway's", other)
    edge.poll("edge_a", returns=[LeaseReturn(said.lease_id, 1, False)])
    require(edge.left() == left - 1, "What is returned is there again", said)
    (again,) = edge.poll("edge_a", [ask]).answers
    is_nothing = isinstance(again, LeaseGrant) and again.granted_nanos == 0
    require(is_nothing, "What is over is answered with nothing", again)
    edge.close(said.lease_id)


def _check_returns(edge: Edge) -> None:
    """Of two returns of one lease in a poll, the lower one counts; it never keeps more again."""
    lease = edge.granted(60, 60).lease_id
    for keeps, wanted in (((9, 7, 8), 7), ((30,), 7), ((7,), 7), ((0,), 0)):
        reply = edge.poll("edge_a", returns=[LeaseReturn(lease, keep, False) for keep in keeps])
        require(set(reply.returned) == {lease}, "What is returned is taken", reply)
        require(edge.pending() == wanted, "A lease keeps what was said last", keeps, edge.pending())
    edge.poll("edge_b", returns=[LeaseReturn(lease, 0, True)])
    both = [LeaseReturn(lease, 0, False), LeaseReturn(lease, 0, True)]
    edge.poll("edge_a", returns=both)
    require(edge.pending() == 0, "In the end nothing is pending", lease)


def _check_overdrawn(edge: Edge) -> None:
    """Taken from a balance to the nano of what is leased, nothing is recalled; a nano more, all."""
    first, second = edge.give(1000, "first"), edge.give(1, "second")
    left = edge.left()
    lease = edge.granted(left - 1001, 1).lease_id
    hidden = edge.granted(1, 1).lease_id
    for grant_id, is_recalled in ((first, False), (second, True)):
        reverse_grant(actor=OPERATOR, grant_id=grant_id, reason="edge", now=edge.cast.now)
        for name in (lease, hidden):
            found = edge.lease(name)[1] is not None
            require(found == is_recalled, "What is overdrawn is recalled", edge.left(), found)
    require(edge.left() == -1, "A reversal takes all that is left", edge.left())
    edge.close(lease)
    edge.close(hidden)


def _check_settled(edge: Edge) -> None:
    """A lease that is used to the nano is no overrun; one nano more is."""
    event = _told(edge)
    if event is None:
        return
    cast, gateway = edge.cast, edge.cast.gateways[0]
    nanos = due(event, cast.world.tariffs, cast.world.callers).charged_nanos
    before = _overruns(edge)
    for granted, is_over in ((nanos, 0), (nanos - 1, 1)):
        given = edge.granted(granted, 1, gateway=gateway.gateway_id)
        charges = (LeaseCharge(edge.budget_id, given.lease_id, nanos),)
        kept, fresh = event.event_id[:14], gateway.new_event_id(gateway.now)
        made = msgspec.structs.replace(event, event_id=kept + fresh[14:], charges=charges)
        body = write_misfit(gateway.journal, made, cast.world)
        batch = UsageBatch(gateway.gateway_id, (msgspec.Raw(body),), sent_at=cast.now)
        hear_receipt(cast, gateway, batch, ingest(batch, now=cast.now))
        require(edge.lease(given.lease_id)[2] == nanos, "A lease settles what it held", given)
        require(_overruns(edge) == before + is_over, "Only an overrun is told", granted, nanos)
        edge.close(given.lease_id, gateway=gateway.gateway_id)


def _check_abandoned(edge: Edge) -> None:
    """A lease waits a day for its gateway, to the moment."""
    given = edge.granted(1, 1)
    row = [int(given.lease_id.partition(".")[2])]
    over = given.admits_until + timedelta(hours=24)
    for at, is_over in ((over - MICROSECOND, False), (over, True)):
        void_abandoned_leases(now=at)
        (voided_at,) = edge.monitor.execute(VOIDED, row).fetchone() or (None,)
        is_right = voided_at == (at if is_over else None)
        require(is_right, "A lease waits a day for its gateway, and no longer", at, voided_at)


def _told(edge: Edge) -> UsageEvent | None:
    """Return something that the first gateway could have charged the organization once more."""
    world = edge.cast.world
    for versions in edge.cast.gateways[0].journal.written.values():
        event = versions[-1]
        nanos = due(event, world.tariffs, world.callers).charged_nanos
        is_mine = (event.organization_id, event.gateway_id) == (edge.owner, "gw0")
        if is_mine and 1 < nanos < edge.left() // 4 and event.outcome == "completed":
            return event
    return None


def _overruns(edge: Edge) -> int:
    (count,) = edge.monitor.execute(OVERRUNS, [edge.owner]).fetchone() or (0,)
    return int(count)


def _check_refunds(edge: Edge) -> None:
    """Refunded is what was paid and nobody holds, to the nano; what is held is called back."""
    edge.give(2000, "paid")
    (paid,) = edge.monitor.execute(PAID, [edge.owner, edge.cast.now]).fetchone() or (0,)
    most, left = min(paid, edge.left()), edge.left()
    half = most // 2
    _refuse(edge, most + 1, HeldByGateways, is_held=False)
    lease = edge.granted(left - half, 1, gateway="edge_b").lease_id
    _refuse(edge, half + 1, HeldByGateways, is_held=True)
    require(edge.lease(lease)[1] == edge.cast.now, "What is held is called back", lease)
    _refund(edge, half, "half")
    edge.close(lease, gateway="edge_b")
    _refund(edge, most - half, "rest")
    require(edge.left() == left - most, "What is refunded is gone", edge.left(), left, most)
    edge.give(2000, "taxed")
    _refund(edge, 1000, "taxed", tax=30)
    common = _common(edge, 1000, "taxed")
    try:
        refund(**common, tax_nanos=31)
    except Conflict:
        return
    require(False, "What contradicts itself is refused", "a refund's tax")


def _common(edge: Edge, nanos: int, key: str) -> dict[str, Any]:
    return {
        "organization_id": edge.owner, "amount_nanos": nanos, "actor": OPERATOR, "reason": "edge",
        "idempotency_key": f"edge {edge.owner} {key}", "now": edge.cast.now,
    }  # fmt: skip


def _refund(edge: Edge, nanos: int, key: str, *, tax: int = 0) -> None:
    """Refund what may be, twice: a repeat does nothing."""
    edge.cast.adjustments[f"edge {edge.owner} {key}"] = Transfer(edge.owner, "refund", nanos, tax)
    for _ in range(2):
        try:
            refund(**_common(edge, nanos, key), tax_nanos=tax)
        except ServiceError as error:
            require(False, "What is left can be refunded", nanos, error)


def _refuse(edge: Edge, nanos: int, kind: type[ServiceError], *, is_held: bool) -> None:
    try:
        refund_or_recall(**_common(edge, nanos, "never"))
    except ServiceError as error:
        is_right = isinstance(error, kind) == is_held
        require(is_right, "A refund says why it is refused", nanos, error)
    else:
        require(False, "Only what is left can be refunded", nanos)

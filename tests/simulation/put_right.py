"""Money put right to the last nano, once all is at rest: revenue given back, debts given up."""

from billing.credit.selectors import owed_nanos
from billing.invoicing.closes import organizations_behind
from billing.ledger.causes import AccountKind
from billing.ledger.selectors import balance_nanos as ledger_nanos
from control.errors import ServiceError
from tests.simulation.cast import OPERATOR, Cast, Transfer
from tests.simulation.deeds.credit import ADJUSTMENTS
from tests.simulation.oracle import require


def credit_everything(cast: Cast, organization_id: str) -> None:
    """Give all revenue back, once; nothing else under that name."""
    earned = -ledger_nanos(organization_id, AccountKind.REVENUE)
    if earned > 0:
        _put_right(cast, "credit-note", organization_id, earned)


def write_off_everything(cast: Cast, organization_id: str) -> None:
    """Give up what an organization owes, to the nano, once; nothing else under that name."""
    owed = owed_nanos(organization_id)
    if owed > 0:
        _put_right(cast, "write-off", organization_id, owed)
        require(owed_nanos(organization_id) == 0, "A debt given up is none", organization_id)


def _put_right(cast: Cast, kind: str, organization_id: str, nanos: int) -> None:
    """Put all of it right, say so again, and contradict that."""
    key = f"last {kind} {organization_id}"
    cast.adjustments[key] = Transfer(organization_id, kind, nanos)
    behind = set(organizations_behind())
    for amount in (nanos, nanos, nanos + 1):
        try:
            ADJUSTMENTS[kind](
                organization_id=organization_id, amount_nanos=amount, idempotency_key=key,
                actor=OPERATOR, reason="last", now=cast.now,
            )  # fmt: skip
        except ServiceError as error:
            require(amount > nanos, "All of it can be put right", kind, organization_id, error)
        else:
            require(amount == nanos, "What contradicts itself is refused", organization_id, amount)
    late = set(organizations_behind()) - behind
    require(not late, "Invoices follow what is put right at once", late)

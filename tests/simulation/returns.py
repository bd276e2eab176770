"""Money that is gone again and returns, tried with nobody beside it: paid credit goes first, the
rest is owed, and what returns settles that first. In the end all is as it was."""

from collections import Counter
from typing import Any

import psycopg

from billing.credit.models import GrantKind
from billing.credit.services.reversals import give_back, take_back
from billing.invoicing.closes import organizations_behind
from billing.ledger.causes import Cause
from control.errors import InvalidValue, NotPermitted, ServiceError
from tests.simulation.cast import OPERATOR, Cast, Wish
from tests.simulation.deeds.credit import make_grant
from tests.simulation.oracle import require
from tests.simulation.refusals import STRANGER

ACCOUNTS = """
SELECT account.kind, sum(nanos)::bigint FROM ledger_entry AS entry
JOIN ledger_account AS account ON account.id = account_id
WHERE account.organization_id = %s GROUP BY 1
"""
LEFT = "SELECT funded_nanos - posted_nanos FROM credit_budget WHERE budget_id = 'balance:' || %s"
LEFT_OF = """
SELECT -balance_nanos FROM ledger_account AS account
JOIN credit_grant AS made ON made.account_id = account.id WHERE made.id = %s
"""
PAID, PROMOTIONAL, OWED = "customer_balance", "promotional_credit", "accounts_receivable"
WORTH = 5_000


def check_returns(cast: Cast, monitor: psycopg.Connection) -> None:
    """Raises BrokenError where money that comes back is not what went."""
    owner = cast.world.organization_ids[0]
    key = f"returns {owner}"
    cast.wishes[key] = Wish(owner, GrantKind.PREPAID, WORTH, None)
    make_grant(key, cast.wishes[key], cast.now)
    behind = set(organizations_behind())
    paid = max(-_accounts(monitor, owner)[PAID], 0)
    for number, (nanos, tax) in enumerate(((paid // 2, 19), (paid + 7, 0), (1, 0), (0, 3))):
        _go_and_return(monitor, _given(cast, owner, str(number), nanos, tax))
    _check_debts(cast, monitor, owner)
    for cause, call in ((Cause.DISPUTE, take_back), (Cause.DISPUTE_REVERSAL, give_back)):
        given = _given(cast, owner, "never", 1, 0) | {"cause": cause}
        _refuse(call, given | {"actor": STRANGER}, NotPermitted)
        _refuse(call, given | {"amount_nanos": 0}, InvalidValue)
        _refuse(call, given | {"amount_nanos": 3, "tax_nanos": -3}, InvalidValue)
    late = set(organizations_behind()) - behind
    require(not late, "Invoices follow what is owed at once", late)


def _go_and_return(monitor: psycopg.Connection, given: dict[str, Any]) -> None:
    owner, nanos, tax = given["organization_id"], given["amount_nanos"], given["tax_nanos"]
    before, left = _accounts(monitor, owner), _left(monitor, owner)
    _do_twice(take_back, given | {"cause": Cause.DISPUTE})
    require(_left(monitor, owner) == left - nanos, "What is gone is gone once", nanos, tax)
    moved = _accounts(monitor, owner)
    cash = before["cash"] - moved["cash"]
    require(cash == nanos + tax, "What is gone is gone with its tax", cash, nanos, tax)
    _do_twice(give_back, given | {"cause": Cause.DISPUTE_REVERSAL})
    require(_left(monitor, owner) == left, "What returns is there once", nanos, tax)
    after = _accounts(monitor, owner)
    for kind in ("cash", "tax_payable"):
        require(after[kind] == before[kind], "What returns is what went", kind, before, after)
    require(after[OWED] <= max(before[OWED], 0), "What returns pays debts first", before, after)


def _check_debts(cast: Cast, monitor: psycopg.Connection, owner: str) -> None:
    """Who owes is given less than that, and then more: it pays debts, to the nano, before all."""
    before = _accounts(monitor, owner)
    # A bill that rounds down what was paid already leaves a part of a cent in their favour.
    nanos = sum(max(-before[kind], 0) for kind in (PAID, PROMOTIONAL, OWED)) + WORTH
    given = _given(cast, owner, "debt", nanos, 0)
    _do_twice(take_back, given | {"cause": Cause.DISPUTE})
    owed = _accounts(monitor, owner)[OWED]
    require(owed >= WORTH, "What is gone beyond all credit is owed", owed, nanos)
    for key, amount in (("less", owed - 400), ("more", 1000)):
        name = f"debt {owner} {key}"
        cast.wishes[name] = Wish(owner, GrantKind.PREPAID, amount, None)
        grant = make_grant(name, cast.wishes[name], cast.now)
        left, owed = max(amount - owed, 0), max(owed - amount, 0)
        (found,) = monitor.execute(LEFT_OF, [grant.pk]).fetchone() or (None,)
        is_right = (found, _accounts(monitor, owner)[OWED]) == (left, owed)
        require(is_right, "Credit pays what is owed first", key, amount, found, left, owed)
    _do_twice(give_back, given | {"cause": Cause.DISPUTE_REVERSAL})


def _do_twice(call: Any, given: dict[str, Any]) -> None:
    first, again = call(**given), call(**given)
    require((first, again) == (True, False), "What is done is done once", given, first, again)


def _given(cast: Cast, owner: str, key: str, nanos: int, tax: int) -> dict[str, Any]:
    return {
        "organization_id": owner, "amount_nanos": nanos, "tax_nanos": tax, "key": f"edge {key}",
        "actor": OPERATOR, "now": cast.now,
    }  # fmt: skip


def _refuse(call: Any, given: dict[str, Any], kind: type[ServiceError]) -> None:
    try:
        call(**given)
    except kind:
        return
    require(False, "What must be refused is", given)


def _accounts(monitor: psycopg.Connection, owner: str) -> Counter[str]:
    return Counter(dict(monitor.execute(ACCOUNTS, [owner]).fetchall()))


def _left(monitor: psycopg.Connection, owner: str) -> int:
    row = monitor.execute(LEFT, [owner]).fetchone()
    return 0 if row is None else int(row[0])

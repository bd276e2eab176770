"""Posting: the only way into the ledger. Callers hold the lock of the organization's balance."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import NamedTuple

from django.db import IntegrityError, transaction

from billing.ledger.causes import CREDIT_KINDS, AccountKind, PostingRule
from billing.ledger.models import Account, Entry, Transaction
from billing.ledger.selectors import AccountKey, account_ids
from serving.contract.ids import new_id

SOURCE_IS_UNIQUE = "ledger_transaction_source_key"


class UnbalancedTransaction(ValueError):
    """The legs of a posting do not sum to zero, or there are fewer than two."""


class AccountNotInRule(ValueError):
    """A leg debits or credits an account that its rule does not."""


class SourceAlreadyPosted(IntegrityError):
    """The ledger has a transaction of this source."""


class Leg(NamedTuple):
    """Nanos debited to (positive) or credited to (negative) an account of an organization.

    `grant_id` is the grant of a credit account, empty for every other account.
    """

    kind: AccountKind
    nanos: int
    grant_id: str = ""


@dataclass(frozen=True, slots=True)
class Posting:
    """One balanced movement to write, as its rule allows. Legs of one account are added up.

    `names` are what the rule's source names, `organization` and `transaction` aside. It is
    accounted on the day it is posted unless it says otherwise.

    Raises UnbalancedTransaction and AccountNotInRule.
    """

    rule: PostingRule
    organization_id: str
    legs: Sequence[Leg]
    names: Mapping[str, str] = field(default_factory=dict)
    accounted_on: date | None = None
    transaction_id: str = field(default_factory=new_id)

    def __post_init__(self) -> None:
        nanos: Counter[tuple[AccountKind, str]] = Counter()
        for leg in self.legs:
            nanos[leg.kind, leg.grant_id] += leg.nanos
        legs = tuple(Leg(kind, part, grant) for (kind, grant), part in nanos.items() if part)
        object.__setattr__(self, "legs", legs)
        total = sum(leg.nanos for leg in legs)
        if total != 0 or len(legs) < 2:
            raise UnbalancedTransaction(
                f"{self.source} has {len(legs)} legs that sum to {total} nanos; wanted 2 or more"
                " that sum to 0"
            )
        for leg in legs:
            self._check(leg)

    @property
    def source(self) -> str:
        """The unique name of its transaction."""
        return self.rule.source_of(
            organization=self.organization_id, transaction=self.transaction_id, **self.names
        )

    @property
    def funded_nanos(self) -> int:
        """What it adds to what funds the organization's balance."""
        return -sum(leg.nanos for leg in self.legs if leg.kind in self.rule.funds)

    def key(self, leg: Leg) -> AccountKey:
        """Return what names the account of a leg."""
        return AccountKey(self.organization_id, leg.kind, leg.grant_id)

    def _check(self, leg: Leg) -> None:
        side, wanted = (
            ("debits", self.rule.debits) if leg.nanos > 0 else ("credits", self.rule.credits)
        )
        if leg.kind not in wanted:
            raise AccountNotInRule(f"{self.source} {side} {leg.kind}; wanted {', '.join(wanted)}")
        if bool(leg.grant_id) != (leg.kind in CREDIT_KINDS):
            raise AccountNotInRule(
                f"{self.source} {side} {leg.kind} of grant {leg.grant_id!r}; wanted a grant for"
                " credit, and for nothing else"
            )


def transfer(rule: PostingRule, nanos: int, grant_id: str = "") -> tuple[Leg, Leg]:
    """Return the two legs of a rule with one account on either side."""
    (debited,), (credited,) = rule.debits, rule.credits
    legs = ((debited, nanos), (credited, -nanos))
    first, second = (
        Leg(kind, part, grant_id if kind in CREDIT_KINDS else "") for kind, part in legs
    )
    return first, second


def post(
    rule: PostingRule,
    *,
    organization_id: str,
    legs: Sequence[Leg],
    now: datetime,
    **names: str,
) -> dict[AccountKey, int]:
    """Write one movement; return the ids of its accounts, opened where they were missing.

    `names` are what the rule's source names. Raises UnbalancedTransaction, AccountNotInRule, and
    SourceAlreadyPosted, after which the caller's transaction can go on.
    """
    return post_all([Posting(rule, organization_id, legs, names)], now=now)


@transaction.atomic
def post_all(postings: Sequence[Posting], *, now: datetime) -> dict[AccountKey, int]:
    """Write movements, all or none of them; the database adds them to the accounts' balances.

    It adds what they fund to the organization's balance, too, and recalls what is leased beyond it.
    Returns the ids of their accounts. Raises SourceAlreadyPosted.
    """
    if not postings:
        return {}
    accounts = _open_accounts(posting.key(leg) for posting in postings for leg in posting.legs)
    _insert(postings, now)
    Entry.objects.bulk_create(
        Entry(
            transaction_id=posting.transaction_id,
            account_id=accounts[posting.key(leg)],
            nanos=leg.nanos,
        )
        for posting in postings
        for leg in posting.legs
    )
    return accounts


def _insert(postings: Sequence[Posting], now: datetime) -> None:
    today = now.astimezone(UTC).date()
    try:
        Transaction.objects.bulk_create(
            Transaction(
                id=posting.transaction_id,
                source=posting.source,
                kind=posting.rule.cause,
                organization_id=posting.organization_id,
                posted_at=now,
                accounted_on=posting.accounted_on or today,
                funded_nanos=posting.funded_nanos,
            )
            for posting in postings
        )
    except IntegrityError as error:
        said = getattr(error.__cause__, "diag", None)
        if said is None or said.constraint_name != SOURCE_IS_UNIQUE:
            raise
        raise SourceAlreadyPosted(said.message_detail) from error


def _open_accounts(keys: Iterable[AccountKey]) -> dict[AccountKey, int]:
    wanted = sorted(set(keys))
    present = account_ids(wanted)
    missing = [key for key in wanted if key not in present]
    if not missing:
        return present
    Account.objects.bulk_create(
        [Account(organization_id=org, kind=kind, owner_id=owner) for org, kind, owner in missing],
        ignore_conflicts=True,
    )
    return account_ids(wanted)

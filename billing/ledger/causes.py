"""The chart of accounts, and the one table of what moves money between them.

A row (`PostingRule`) says which accounts a movement may debit and credit, what of it funds the
organization's balance, what its transaction is called, and who may cause it. `post` writes nothing
that no row allows.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from django.db import models
from django.utils.translation import gettext_lazy as _

from control.errors import NotPermitted
from control.permissions import Actor, Permission, require_operator

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


class AccountKind(models.TextChoices):
    """Where money sits. Each customer account exists per organization, credit per grant."""

    CASH = "cash", _("Cash")
    ACCOUNTS_RECEIVABLE = "accounts_receivable", _("Accounts receivable")
    CUSTOMER_BALANCE = "customer_balance", _("Customer balance")
    PROMOTIONAL_CREDIT = "promotional_credit", _("Promotional credit")
    TAX_PAYABLE = "tax_payable", _("Tax payable")
    REVENUE = "revenue", _("Revenue")
    BREAKAGE = "breakage", _("Breakage of expired prepayments")
    ROUNDING = "rounding", _("Rounding of invoices")
    PROMOTION_EXPENSE = "promotion_expense", _("Promotion")
    BAD_DEBT = "bad_debt", _("Debts written off")


class AccountClass(models.TextChoices):
    """What an account is in a balance sheet or an income statement."""

    ASSET = "asset", _("Asset")
    LIABILITY = "liability", _("Liability")
    INCOME = "income", _("Income")
    EXPENSE = "expense", _("Expense")


CHART_OF_ACCOUNTS: Mapping[AccountKind, AccountClass] = {
    AccountKind.CASH: AccountClass.ASSET,
    AccountKind.ACCOUNTS_RECEIVABLE: AccountClass.ASSET,
    AccountKind.CUSTOMER_BALANCE: AccountClass.LIABILITY,
    AccountKind.PROMOTIONAL_CREDIT: AccountClass.LIABILITY,
    AccountKind.TAX_PAYABLE: AccountClass.LIABILITY,
    AccountKind.REVENUE: AccountClass.INCOME,
    AccountKind.BREAKAGE: AccountClass.INCOME,
    AccountKind.ROUNDING: AccountClass.INCOME,
    AccountKind.PROMOTION_EXPENSE: AccountClass.EXPENSE,
    AccountKind.BAD_DEBT: AccountClass.EXPENSE,
}
"""All accounts with their class, in the order of a trial balance."""
CREDIT_KINDS = (AccountKind.CUSTOMER_BALANCE, AccountKind.PROMOTIONAL_CREDIT)
"""The accounts that usage draws from."""
BALANCE_KINDS = (*CREDIT_KINDS, AccountKind.ACCOUNTS_RECEIVABLE)
"""The accounts that an organization's balance is made of: its credit less its debt."""

DEBIT_KINDS = tuple(
    kind
    for kind, of in CHART_OF_ACCOUNTS.items()
    if of in (AccountClass.ASSET, AccountClass.EXPENSE)
)
"""Assets and expenses: debits fill them, and credits fill the others."""


class Cause(models.TextChoices):
    """Why money moved, as a transaction keeps it. Several rows of the table may share one."""

    USAGE = "usage", _("Usage")
    GRANT = "grant", _("Credit grant")
    GRANT_REVERSAL = "grant_reversal", _("Reversal of a grant")
    PAYMENT = "payment", _("Payment")
    ALLOCATION = "allocation", _("Credit applied to a debt")
    EXPIRY = "expiry", _("Credit expiry")
    EXPIRY_REVERSAL = "expiry_reversal", _("Expiry undone by late usage")
    REFUND = "refund", _("Refund")
    REFUND_REVERSAL = "refund_reversal", _("Refund that came back")
    DISPUTE = "dispute", _("Dispute")
    DISPUTE_REVERSAL = "dispute_reversal", _("Dispute won")
    TAX = "tax", _("Tax")
    WRITE_OFF = "write_off", _("Write-off")
    ROUNDING = "rounding", _("Rounding of an invoice")
    CORRECTION = "correction", _("Correction")


@dataclass(frozen=True, slots=True)
class PostingRule:
    """One row: a movement is entries that debit some of `debits` and credit some of `credits`.

    Credits of the accounts in `funds` add to what funds the organization's balance, and debits take
    from it. `source` is the unique name of its transaction; `post` fills in the names in braces.
    `title` is what a statement calls it once what the source names is found: the cause's label
    unless said otherwise. `permission` is the operator's, None where no person causes it.
    """

    cause: Cause
    source: str
    debits: tuple[AccountKind, ...]
    credits: tuple[AccountKind, ...]
    title: "StrOrPromise" = ""
    permission: Permission | None = None
    funds: tuple[AccountKind, ...] = BALANCE_KINDS

    def source_of(self, **names: str) -> str:
        """Return the name of the transaction that these names belong to."""
        return self.source.format(**names)

    def names_in(self, source: str) -> dict[str, str] | None:
        """Return what a source fills in, None for the source of another rule."""
        found = _pattern(self.source).fullmatch(source)
        return found.groupdict() if found else None


@cache
def _pattern(source: str) -> re.Pattern[str]:
    texts = re.split(r"\{(\w+)\}", source)  # every second one is a name
    for place, name in enumerate(texts):
        # A key is its caller's, and may hold colons.
        words = ".+" if name == "key" else "[^:]+"
        texts[place] = f"(?P<{name}>{words})" if place % 2 else re.escape(name)
    return re.compile("".join(texts))


# Short, for the table.
CASH = AccountKind.CASH
RECEIVABLE = AccountKind.ACCOUNTS_RECEIVABLE
PREPAID_CREDIT = AccountKind.CUSTOMER_BALANCE
PROMOTIONAL_CREDIT = AccountKind.PROMOTIONAL_CREDIT
TAX = AccountKind.TAX_PAYABLE
REVENUE = AccountKind.REVENUE
BREAKAGE = AccountKind.BREAKAGE
ROUNDING = AccountKind.ROUNDING
PROMOTIONS = AccountKind.PROMOTION_EXPENSE
BAD_DEBT = AccountKind.BAD_DEBT
FINANCE = Permission.FINANCE_WRITE

USAGE = PostingRule(
    Cause.USAGE, "usage:{transaction}", title=_("Usage of %(day)s"),
    debits=BALANCE_KINDS, credits=(REVENUE,), funds=(),  # its charges left as they came in
)  # fmt: skip
ALLOCATION = PostingRule(
    Cause.ALLOCATION, "allocation:{transaction}",
    debits=CREDIT_KINDS, credits=(RECEIVABLE,),
)  # fmt: skip
PROMOTIONAL_GRANT = PostingRule(
    Cause.GRANT, "grant:{grant}",
    debits=(PROMOTIONS,), credits=(PROMOTIONAL_CREDIT,), permission=FINANCE,
)  # fmt: skip
PROMOTIONAL_REVERSAL = PostingRule(
    Cause.GRANT_REVERSAL, "grant-reversal:{grant}",
    debits=(PROMOTIONAL_CREDIT,), credits=(PROMOTIONS,), permission=FINANCE,
)  # fmt: skip
PROMOTIONAL_EXPIRY = PostingRule(
    Cause.EXPIRY, "expiry:{grant}:{transaction}",
    debits=(PROMOTIONAL_CREDIT,), credits=(PROMOTIONS,),
)  # fmt: skip
PROMOTIONAL_EXPIRY_REVERSAL = PostingRule(
    Cause.EXPIRY_REVERSAL, "expiry_reversal:{transaction}",
    debits=(PROMOTIONS,), credits=(PROMOTIONAL_CREDIT,),
)  # fmt: skip
PREPAID_GRANT = PostingRule(
    Cause.GRANT, "grant:{grant}",
    debits=(CASH,), credits=(PREPAID_CREDIT,), permission=FINANCE,
)  # fmt: skip
# The credit goes back to where it came from, and is gone whatever that was.
PREPAID_REVERSAL = PostingRule(
    Cause.GRANT_REVERSAL, "grant-reversal:{grant}", permission=FINANCE, funds=CREDIT_KINDS,
    debits=(PREPAID_CREDIT,), credits=(CASH, REVENUE, RECEIVABLE),
)  # fmt: skip
PREPAID_EXPIRY = PostingRule(
    Cause.EXPIRY, "expiry:{grant}:{transaction}",
    debits=(PREPAID_CREDIT,), credits=(BREAKAGE,),
)  # fmt: skip
PREPAID_EXPIRY_REVERSAL = PostingRule(
    Cause.EXPIRY_REVERSAL, "expiry_reversal:{transaction}",
    debits=(BREAKAGE,), credits=(PREPAID_CREDIT,),
)  # fmt: skip
PAYMENT_OF_DEBT = PostingRule(
    Cause.PAYMENT, "payment:{organization}:{key}",
    debits=(CASH,), credits=(RECEIVABLE,), permission=FINANCE,
)  # fmt: skip
PAYMENT_INTO_CREDIT = PostingRule(
    Cause.PAYMENT, "grant:{grant}",
    debits=(CASH,), credits=(PREPAID_CREDIT,), permission=FINANCE,
)  # fmt: skip
PAYMENT_TAX = PostingRule(
    Cause.TAX, "tax:{organization}:{key}", title=_("Tax on a payment"),
    debits=(CASH,), credits=(TAX,), permission=FINANCE,
)  # fmt: skip
REFUND = PostingRule(
    Cause.REFUND, "refund:{organization}:{key}",
    debits=(PREPAID_CREDIT, TAX), credits=(CASH,), permission=FINANCE,
)  # fmt: skip
REFUND_BY_PROVIDER = PostingRule(
    Cause.REFUND, "refund:{organization}:{key}",
    debits=(PREPAID_CREDIT, RECEIVABLE, TAX), credits=(CASH,), permission=FINANCE,
)  # fmt: skip
DISPUTE = PostingRule(
    Cause.DISPUTE, "dispute:{organization}:{key}",
    debits=REFUND_BY_PROVIDER.debits, credits=(CASH,), permission=FINANCE,
)  # fmt: skip
REFUND_RETURNED_FOR_DEBT = PostingRule(
    Cause.REFUND_REVERSAL, "refund_reversal:{organization}:{key}",
    debits=(CASH,), credits=(RECEIVABLE,), permission=FINANCE,
)  # fmt: skip
REFUND_RETURNED_INTO_CREDIT = PostingRule(
    Cause.REFUND_REVERSAL, "grant:{grant}",
    debits=(CASH,), credits=(PREPAID_CREDIT,), permission=FINANCE,
)  # fmt: skip
REFUND_RETURNED_TAX = PostingRule(
    Cause.REFUND_REVERSAL, "refund_reversal:{organization}:{key}:tax",
    debits=(CASH,), credits=(TAX,), permission=FINANCE,
)  # fmt: skip
DISPUTE_WON_FOR_DEBT = PostingRule(
    Cause.DISPUTE_REVERSAL, "dispute_reversal:{organization}:{key}",
    debits=(CASH,), credits=(RECEIVABLE,), permission=FINANCE,
)  # fmt: skip
DISPUTE_WON_INTO_CREDIT = PostingRule(
    Cause.DISPUTE_REVERSAL, "grant:{grant}",
    debits=(CASH,), credits=(PREPAID_CREDIT,), permission=FINANCE,
)  # fmt: skip
DISPUTE_WON_TAX = PostingRule(
    Cause.DISPUTE_REVERSAL, "dispute_reversal:{organization}:{key}:tax",
    debits=(CASH,), credits=(TAX,), permission=FINANCE,
)  # fmt: skip
WRITE_OFF = PostingRule(
    Cause.WRITE_OFF, "write-off:{organization}:{key}",
    debits=(BAD_DEBT,), credits=(RECEIVABLE,), permission=FINANCE,
)  # fmt: skip
GOODWILL_FOR_DEBT = PostingRule(
    Cause.CORRECTION, "credit-note:{organization}:{key}",
    debits=(REVENUE,), credits=(RECEIVABLE,), permission=FINANCE,
)  # fmt: skip
GOODWILL_INTO_CREDIT = PostingRule(
    Cause.CORRECTION, "grant:{grant}",
    debits=(REVENUE,), credits=(PREPAID_CREDIT,), permission=FINANCE,
)  # fmt: skip
INVOICE_ROUNDING = PostingRule(
    Cause.ROUNDING, "rounding:invoice:{invoice}", title=_("Rounding of invoice %(number)s"),
    debits=(RECEIVABLE, ROUNDING), credits=(ROUNDING, RECEIVABLE),
)  # fmt: skip
INVOICE_TAX = PostingRule(
    Cause.TAX, "tax:invoice:{invoice}", title=_("Tax on invoice %(number)s"),
    debits=(RECEIVABLE,), credits=(TAX,),
)  # fmt: skip
CREDIT_NOTE = PostingRule(
    Cause.CORRECTION, "credit-note:{note}", title=_("Credit note %(number)s"),
    debits=(REVENUE, ROUNDING, TAX), credits=(RECEIVABLE, ROUNDING), permission=FINANCE,
)  # fmt: skip
CREDIT_NOTE_INTO_CREDIT = PostingRule(
    Cause.CORRECTION, "grant:{grant}",
    debits=(RECEIVABLE,), credits=(PREPAID_CREDIT,), permission=FINANCE,
)  # fmt: skip

RULES = (
    USAGE,
    ALLOCATION,
    PROMOTIONAL_GRANT,
    PREPAID_GRANT,
    PROMOTIONAL_REVERSAL,
    PREPAID_REVERSAL,
    PROMOTIONAL_EXPIRY,
    PREPAID_EXPIRY,
    PROMOTIONAL_EXPIRY_REVERSAL,
    PREPAID_EXPIRY_REVERSAL,
    PAYMENT_OF_DEBT,
    PAYMENT_INTO_CREDIT,
    INVOICE_TAX,
    PAYMENT_TAX,
    REFUND,
    REFUND_BY_PROVIDER,
    REFUND_RETURNED_TAX,
    REFUND_RETURNED_FOR_DEBT,
    REFUND_RETURNED_INTO_CREDIT,
    DISPUTE,
    DISPUTE_WON_TAX,
    DISPUTE_WON_FOR_DEBT,
    DISPUTE_WON_INTO_CREDIT,
    WRITE_OFF,
    INVOICE_ROUNDING,
    CREDIT_NOTE,
    CREDIT_NOTE_INTO_CREDIT,
    GOODWILL_FOR_DEBT,
    GOODWILL_INTO_CREDIT,
)
"""The table. Of two rules whose sources look alike, the narrower one comes first."""


class CreditRules(NamedTuple):
    """What is done with one kind of credit, and the account that holds it."""

    account: AccountKind
    grant: PostingRule
    reversal: PostingRule
    expiry: PostingRule
    expiry_reversal: PostingRule


CREDIT_RULES: Mapping[str, CreditRules] = {
    "promotional": CreditRules(
        PROMOTIONAL_CREDIT,
        PROMOTIONAL_GRANT,
        PROMOTIONAL_REVERSAL,
        PROMOTIONAL_EXPIRY,
        PROMOTIONAL_EXPIRY_REVERSAL,
    ),
    "prepaid": CreditRules(
        PREPAID_CREDIT,
        PREPAID_GRANT,
        PREPAID_REVERSAL,
        PREPAID_EXPIRY,
        PREPAID_EXPIRY_REVERSAL,
    ),
}
"""By the kind of a grant."""


def require_permission(rule: PostingRule, actor: Actor) -> None:
    """Check that an actor is an operator who may cause it. Raises NotPermitted."""
    if rule.permission is None:
        raise NotPermitted(f"{rule.cause.label} is caused by no person.")
    require_operator(actor, rule.permission)


def rule_of(cause: str, source: str) -> tuple[PostingRule, dict[str, str]] | None:
    """Return the first rule that a transaction may have been posted by, and what its source names.

    None for a source that no rule writes.
    """
    for rule in RULES:
        if rule.cause == cause and (names := rule.names_in(source)) is not None:
            return rule, names
    return None

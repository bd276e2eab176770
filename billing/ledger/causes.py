"""The chart of accounts, and the one table of what moves money between them.

A row (`PostingRule`) says which accounts a movement may debit and credit, what of it funds the
organization's balance, what its transaction is called, and who may cause it. `post` writes nothing
that no row allows.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from django.db import models
from django.utils.translation import gettext_lazy as _

from control.errors import NotPermitted
from control.permissions import Actor, Permission, require_operator

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


class AccountKind(models.TextChoices):
    """Where money sits. Each customer account exists per organization, credit per grant."""

    CASH = "cash", _("Cash (asset)")
    ACCOUNTS_RECEIVABLE = "accounts_receivable", _("Accounts receivable (asset)")
    CUSTOMER_BALANCE = "customer_balance", _("Customer balance (liability)")
    PROMOTIONAL_CREDIT = "promotional_credit", _("Promotional credit (liability)")
    TAX_PAYABLE = "tax_payable", _("Tax payable (liability)")
    REVENUE = "revenue", _("Revenue (income)")
    BREAKAGE = "breakage", _("Breakage of expired prepayments (income)")
    ROUNDING = "rounding", _("Rounding of invoices (income)")
    PROMOTION_EXPENSE = "promotion_expense", _("Promotion (expense)")
    BAD_DEBT = "bad_debt", _("Debts written off (expense)")


CREDIT_KINDS = (AccountKind.CUSTOMER_BALANCE, AccountKind.PROMOTIONAL_CREDIT)
"""The accounts that usage draws from."""
BALANCE_KINDS = (*CREDIT_KINDS, AccountKind.ACCOUNTS_RECEIVABLE)
"""The accounts that an organization's balance is made of: its credit less its debt."""


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


USAGE = PostingRule(
    Cause.USAGE,
    "usage:{transaction}",
    debits=BALANCE_KINDS,
    credits=(AccountKind.REVENUE,),
    title=_("Usage of %(day)s"),
    funds=(),  # its charges were taken from the balance as they came in
)
ALLOCATION = PostingRule(
    Cause.ALLOCATION,
    "allocation:{transaction}",
    debits=CREDIT_KINDS,
    credits=(AccountKind.ACCOUNTS_RECEIVABLE,),
)
PAYMENT_OF_DEBT = PostingRule(
    Cause.PAYMENT,
    "payment:{organization}:{key}",
    debits=(AccountKind.CASH,),
    credits=(AccountKind.ACCOUNTS_RECEIVABLE,),
    permission=Permission.FINANCE_WRITE,
)
PAYMENT_INTO_CREDIT = PostingRule(
    Cause.PAYMENT,
    "grant:{grant}",
    debits=(AccountKind.CASH,),
    credits=(AccountKind.CUSTOMER_BALANCE,),
    permission=Permission.FINANCE_WRITE,
)
PAYMENT_TAX = PostingRule(
    Cause.TAX,
    "tax:{organization}:{key}",
    debits=(AccountKind.CASH,),
    credits=(AccountKind.TAX_PAYABLE,),
    title=_("Tax on a payment"),
    permission=Permission.FINANCE_WRITE,
)
REFUND = PostingRule(
    Cause.REFUND,
    "refund:{organization}:{key}",
    debits=(AccountKind.CUSTOMER_BALANCE, AccountKind.TAX_PAYABLE),
    credits=(AccountKind.CASH,),
    permission=Permission.FINANCE_WRITE,
)
REFUND_BY_PROVIDER = PostingRule(
    Cause.REFUND,
    "refund:{organization}:{key}",
    debits=(
        AccountKind.CUSTOMER_BALANCE,
        AccountKind.ACCOUNTS_RECEIVABLE,
        AccountKind.TAX_PAYABLE,
    ),
    credits=(AccountKind.CASH,),
    permission=Permission.FINANCE_WRITE,
)
DISPUTE = PostingRule(
    Cause.DISPUTE,
    "dispute:{organization}:{key}",
    debits=REFUND_BY_PROVIDER.debits,
    credits=(AccountKind.CASH,),
    permission=Permission.FINANCE_WRITE,
)
WRITE_OFF = PostingRule(
    Cause.WRITE_OFF,
    "write-off:{organization}:{key}",
    debits=(AccountKind.BAD_DEBT,),
    credits=(AccountKind.ACCOUNTS_RECEIVABLE,),
    permission=Permission.FINANCE_WRITE,
)
GOODWILL_FOR_DEBT = PostingRule(
    Cause.CORRECTION,
    "credit-note:{organization}:{key}",
    debits=(AccountKind.REVENUE,),
    credits=(AccountKind.ACCOUNTS_RECEIVABLE,),
    permission=Permission.FINANCE_WRITE,
)
GOODWILL_INTO_CREDIT = PostingRule(
    Cause.CORRECTION,
    "grant:{grant}",
    debits=(AccountKind.REVENUE,),
    credits=(AccountKind.CUSTOMER_BALANCE,),
    permission=Permission.FINANCE_WRITE,
)
INVOICE_ROUNDING = PostingRule(
    Cause.ROUNDING,
    "rounding:invoice:{invoice}",
    debits=(AccountKind.ACCOUNTS_RECEIVABLE, AccountKind.ROUNDING),
    credits=(AccountKind.ROUNDING, AccountKind.ACCOUNTS_RECEIVABLE),
    title=_("Rounding of invoice %(number)s"),
)
INVOICE_TAX = PostingRule(
    Cause.TAX,
    "tax:invoice:{invoice}",
    debits=(AccountKind.ACCOUNTS_RECEIVABLE,),
    credits=(AccountKind.TAX_PAYABLE,),
    title=_("Tax on invoice %(number)s"),
)
CREDIT_NOTE = PostingRule(
    Cause.CORRECTION,
    "credit-note:{note}",
    debits=(AccountKind.REVENUE, AccountKind.ROUNDING, AccountKind.TAX_PAYABLE),
    credits=(AccountKind.ACCOUNTS_RECEIVABLE, AccountKind.ROUNDING),
    title=_("Credit note %(number)s"),
    permission=Permission.FINANCE_WRITE,
)
CREDIT_NOTE_INTO_CREDIT = PostingRule(
    Cause.CORRECTION,
    "grant:{grant}",
    debits=(AccountKind.ACCOUNTS_RECEIVABLE,),
    credits=(AccountKind.CUSTOMER_BALANCE,),
    permission=Permission.FINANCE_WRITE,
)


@dataclass(frozen=True, slots=True)
class CreditRules:
    """What is done with one kind of credit, and the account that holds it."""

    account: AccountKind
    grant: PostingRule
    grant_reversal: PostingRule
    expiry: PostingRule
    expiry_reversal: PostingRule


PROMOTIONAL = CreditRules(
    account=AccountKind.PROMOTIONAL_CREDIT,
    grant=PostingRule(
        Cause.GRANT,
        "grant:{grant}",
        debits=(AccountKind.PROMOTION_EXPENSE,),
        credits=(AccountKind.PROMOTIONAL_CREDIT,),
        permission=Permission.FINANCE_WRITE,
    ),
    grant_reversal=PostingRule(
        Cause.GRANT_REVERSAL,
        "grant-reversal:{grant}",
        debits=(AccountKind.PROMOTIONAL_CREDIT,),
        credits=(AccountKind.PROMOTION_EXPENSE,),
        permission=Permission.FINANCE_WRITE,
    ),
    expiry=PostingRule(
        Cause.EXPIRY,
        "expiry:{grant}:{transaction}",
        debits=(AccountKind.PROMOTIONAL_CREDIT,),
        credits=(AccountKind.PROMOTION_EXPENSE,),
    ),
    expiry_reversal=PostingRule(
        Cause.EXPIRY_REVERSAL,
        "expiry_reversal:{transaction}",
        debits=(AccountKind.PROMOTION_EXPENSE,),
        credits=(AccountKind.PROMOTIONAL_CREDIT,),
    ),
)
PREPAID = CreditRules(
    account=AccountKind.CUSTOMER_BALANCE,
    grant=PostingRule(
        Cause.GRANT,
        "grant:{grant}",
        debits=(AccountKind.CASH,),
        credits=(AccountKind.CUSTOMER_BALANCE,),
        permission=Permission.FINANCE_WRITE,
    ),
    grant_reversal=PostingRule(
        Cause.GRANT_REVERSAL,
        "grant-reversal:{grant}",
        debits=(AccountKind.CUSTOMER_BALANCE,),
        # Where the grant came from: a payment, goodwill, or a credit note of a paid invoice.
        credits=(AccountKind.CASH, AccountKind.REVENUE, AccountKind.ACCOUNTS_RECEIVABLE),
        permission=Permission.FINANCE_WRITE,
        funds=CREDIT_KINDS,  # the credit is gone, whatever it came from
    ),
    expiry=PostingRule(
        Cause.EXPIRY,
        "expiry:{grant}:{transaction}",
        debits=(AccountKind.CUSTOMER_BALANCE,),
        credits=(AccountKind.BREAKAGE,),
    ),
    expiry_reversal=PostingRule(
        Cause.EXPIRY_REVERSAL,
        "expiry_reversal:{transaction}",
        debits=(AccountKind.BREAKAGE,),
        credits=(AccountKind.CUSTOMER_BALANCE,),
    ),
)
CREDIT_RULES: Mapping[str, CreditRules] = {"promotional": PROMOTIONAL, "prepaid": PREPAID}
"""By the kind of a grant."""


@dataclass(frozen=True, slots=True)
class ReturnRules:
    """Money that was gone and comes back: what it pays, the credit it becomes, and its tax."""

    debt: PostingRule
    credit: PostingRule
    tax: PostingRule


def _return_of(cause: Cause) -> ReturnRules:
    def rule(source: str, credited: AccountKind) -> PostingRule:
        return PostingRule(
            cause,
            source,
            debits=(AccountKind.CASH,),
            credits=(credited,),
            permission=Permission.FINANCE_WRITE,
        )

    return ReturnRules(
        debt=rule(f"{cause}:{{organization}}:{{key}}", AccountKind.ACCOUNTS_RECEIVABLE),
        credit=rule("grant:{grant}", AccountKind.CUSTOMER_BALANCE),
        tax=rule(f"{cause}:{{organization}}:{{key}}:tax", AccountKind.TAX_PAYABLE),
    )


REFUND_RETURNED = _return_of(Cause.REFUND_REVERSAL)
DISPUTE_WON = _return_of(Cause.DISPUTE_REVERSAL)

RULES = (
    USAGE,
    ALLOCATION,
    PROMOTIONAL.grant,
    PREPAID.grant,
    PROMOTIONAL.grant_reversal,
    PREPAID.grant_reversal,
    PROMOTIONAL.expiry,
    PREPAID.expiry,
    PROMOTIONAL.expiry_reversal,
    PREPAID.expiry_reversal,
    PAYMENT_OF_DEBT,
    PAYMENT_INTO_CREDIT,
    INVOICE_TAX,
    PAYMENT_TAX,
    REFUND,
    REFUND_BY_PROVIDER,
    REFUND_RETURNED.tax,
    REFUND_RETURNED.debt,
    REFUND_RETURNED.credit,
    DISPUTE,
    DISPUTE_WON.tax,
    DISPUTE_WON.debt,
    DISPUTE_WON.credit,
    WRITE_OFF,
    INVOICE_ROUNDING,
    CREDIT_NOTE,
    CREDIT_NOTE_INTO_CREDIT,
    GOODWILL_FOR_DEBT,
    GOODWILL_INTO_CREDIT,
)
"""The table. Of two rules whose sources look alike, the narrower one comes first."""


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

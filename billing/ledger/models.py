"""Double-entry books in nano-dollars. Debits are positive, credits negative; each transaction
sums to zero. The database refuses changes, unbalanced transactions, entries that join a
transaction of the past, and balances moved by anything but a posting (sql/books.sql)."""

from django.db import models
from django.db.models import Q

from billing.fields import CurrentXid, Xid8Field
from billing.ledger.causes import AccountKind, Cause
from control.db.models import append_only, no_truncate
from serving.contract.ids import new_id


class Account(models.Model):
    """A place of money. `balance_nanos` is the sum of its entries, kept by the database as they
    are inserted; check_integrity proves it.

    `owner_id` tells apart several accounts of one kind: a credit account is owned by its grant.
    """

    organization_id = models.CharField(max_length=64)
    kind = models.CharField(max_length=32, choices=AccountKind)
    owner_id = models.CharField(max_length=64, default="", blank=True)
    balance_nanos = models.BigIntegerField(default=0)

    class Meta:
        db_table = "ledger_account"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "kind", "owner_id"], name="account_is_unique"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=AccountKind.values), name="account_kind_is_known"
            ),
        ]
        triggers = [no_truncate("account")]

    def __str__(self) -> str:
        return f"{self.organization_id} {self.kind}"

    @property
    def credit_nanos(self) -> int:
        """What a liability or income account holds: its credits minus its debits."""
        return -self.balance_nanos


class Transaction(models.Model):
    """One balanced movement. `source` names what caused it, once: the idempotency key.

    `accounted_on` is the UTC day it belongs to in the books.
    """

    id = models.CharField(primary_key=True, max_length=64, default=new_id)
    source = models.CharField(max_length=200, unique=True)
    kind = models.CharField(max_length=16, choices=Cause)
    organization_id = models.CharField(max_length=64)
    posted_at = models.DateTimeField()
    accounted_on = models.DateField()
    funded_nanos = models.BigIntegerField(db_default=0)
    """What it adds to what funds the organization's balance: the database adds it there."""
    created_xid = Xid8Field(null=True, db_default=CurrentXid(), editable=False)
    """What wrote it, and alone may write its entries."""

    class Meta:
        db_table = "ledger_transaction"
        indexes = [
            models.Index(fields=["organization_id", "posted_at"], name="transaction_by_org"),
            # The journal is read in this order, a page at a time.
            models.Index(fields=["accounted_on", "posted_at"], name="transaction_by_day"),
            models.Index(
                fields=["accounted_on"],
                name="transaction_correcting",
                condition=Q(kind="correction"),
            ),
        ]
        triggers = append_only("transaction")

    def __str__(self) -> str:
        return self.source


class Entry(models.Model):
    """One side of a transaction: `nanos` debited to (positive) or credited to (negative)."""

    transaction = models.ForeignKey(Transaction, models.PROTECT, related_name="entries")
    account = models.ForeignKey(Account, models.PROTECT, related_name="entries", db_index=False)
    nanos = models.BigIntegerField()

    class Meta:
        db_table = "ledger_entry"
        verbose_name_plural = "entries"
        constraints = [models.CheckConstraint(condition=~Q(nanos=0), name="entry_moves_money")]
        indexes = [
            # A statement is read from it alone, balances included.
            models.Index(fields=["account", "id"], include=["nanos"], name="entry_by_account")
        ]
        triggers = append_only("entry")

    def __str__(self) -> str:
        return f"{self.nanos} nanos"

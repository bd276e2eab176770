"""The operator's view of the books: to look at, never to write in."""

from django.contrib import admin
from unfold.admin import TabularInline

from billing.ledger.models import Account, Entry, Transaction
from billing.rating.money import exact_dollars
from control.operator_admin import ReadOnlyAdmin


class EntryInline(TabularInline):
    """Both sides of a transaction."""

    model = Entry
    fields = ("account", "nanos")
    readonly_fields = fields
    extra = 0
    can_delete = False


@admin.register(Account)
class AccountAdmin(ReadOnlyAdmin):
    """Accounts with their cached balances."""

    list_display = ("organization_id", "kind", "owner_id", "balance")
    list_filter = ("kind",)
    search_fields = ("organization_id", "owner_id")

    @admin.display(description="balance, debits positive", ordering="balance_nanos")
    def balance(self, account: Account) -> str:
        """Return the balance to the nano."""
        return exact_dollars(account.balance_nanos)


@admin.register(Transaction)
class TransactionAdmin(ReadOnlyAdmin):
    """Balanced movements, the newest first."""

    list_display = ("posted_at", "kind", "organization_id", "source")
    list_filter = ("kind",)
    search_fields = ("organization_id", "source", "id")
    ordering = ("-posted_at",)
    inlines = (EntryInline,)

"""The operator's view of the ledger: to look at, never to write in."""

from django.contrib import admin
from django.utils.translation import gettext_lazy as _
from unfold.admin import TabularInline

from billing.ledger.models import Account, Entry, Transaction
from control.admin.base import ReadOnlyAdmin
from control.admin.fields import dollars


class EntryInline(TabularInline):
    """Both sides of a transaction."""

    model = Entry
    fields = ("account", "amount")
    readonly_fields = fields
    extra = 0
    can_delete = False
    hide_title = True

    amount = dollars("nanos", _("Amount, debits positive"))


@admin.register(Account)
class AccountAdmin(ReadOnlyAdmin):
    """Accounts with their cached balances."""

    list_display = ("organization_id", "kind", "owner_id", "balance")
    list_filter = ("kind",)
    search_fields = ("organization_id", "owner_id")
    fields = ("id", "organization_id", "kind", "owner_id", "balance")
    readonly_fields = ("id", "balance")

    balance = dollars("balance_nanos", _("Balance, debits positive"))


@admin.register(Transaction)
class TransactionAdmin(ReadOnlyAdmin):
    """Balanced movements, the newest first."""

    list_display = ("posted_at", "accounted_on", "kind", "organization_id", "source", "funded")
    list_filter = ("kind",)
    search_fields = ("organization_id", "source", "id")
    fields = ("id", "source", "kind", "organization_id", "posted_at", "accounted_on", "funded")
    readonly_fields = ("id", "funded")
    ordering = ("-posted_at",)
    inlines = (EntryInline,)

    funded = dollars("funded_nanos", _("Funded"))

"""Final documents in the admin: to look at, to credit by a credit note, to mark as disputed."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.admin import TabularInline
from unfold.decorators import action

from billing.invoicing.models import (
    CreditNote,
    Invoice,
    InvoiceLine,
    InvoicePayment,
)
from billing.invoicing.printed import dollars as dollars_of_cents
from billing.invoicing.selectors import (
    STATE_LABELS,
    credit_note_by_id,
    invoice_by_id,
    standing_by_id,
    standings,
)
from billing.invoicing.services.disputes import close_dispute, open_dispute
from billing.invoicing.services.notes import issue_credit_note, left_to_credit
from billing.invoicing.typeset.pdf import credit_note_pdf, invoice_pdf
from control.admin.base import ReadOnlyAdmin
from control.admin.confirm import Confirmation, ReasonForm, confirm
from control.admin.fields import dollars
from control.api.streaming import whole_export
from control.organizations.admin import OrganizationOwnedAdmin
from control.permissions import Actor

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

BY_OPERATOR = "operator"
"""The key of a dispute that an operator opened."""


def cents(column: str, description: "StrOrPromise") -> Any:
    """Return a column of the admin that shows cents as dollars."""

    @admin.display(description=description, ordering=column)
    def shown(_: Any, row: Any) -> str:
        return dollars_of_cents(getattr(row, column))

    return shown


def stood(rows: Iterable[Any]) -> list[Any]:
    """Return invoices with their `standing`, by one question for all."""
    found = list(rows)
    for row, stands in zip(found, standings(found), strict=True):
        row.standing = stands
    return found


class LineInline(TabularInline):
    """What was used."""

    model = InvoiceLine
    fields = (
        "variant_name", "tier", "meter", "received_on", "tokens", "unit_price", "exact",
        "amount",
    )  # fmt: skip
    readonly_fields = fields
    ordering = ("position",)
    extra = 0
    can_delete = False
    hide_title = True

    unit_price = dollars("unit_price_nanos", _("Per million"))
    exact = dollars("amount_nanos", _("Exact"))
    amount = cents("amount_cents", _("Amount"))

    @admin.display(description=_("Tokens"))
    def tokens(self, row: InvoiceLine) -> str:
        """Return how many there were."""
        return f"{row.quantity_tokens:,}"


class PaymentInline(TabularInline):
    """What settled it."""

    model = InvoicePayment
    fields = ("settled_at", "cause", "payment_id", "amount")
    readonly_fields = fields
    ordering = ("settled_at", "pk")
    extra = 0
    can_delete = False
    hide_title = True

    amount = dollars("nanos", _("Amount"))


@admin.register(Invoice)
class InvoiceAdmin(OrganizationOwnedAdmin, ReadOnlyAdmin):
    """Final invoices: to look at, to take back by credit note, to mark as disputed."""

    list_display = (
        "number", "owner", "month", "total", "left", "state", "due_on", "issued_at",
    )  # fmt: skip
    list_filter = ("starts_on", "legal_entity")
    search_fields = ("number", "organization_id", "id")
    ordering = ("-issued_at",)
    fields = (
        "number", "document", "owner", "month", "state", "issued_at", "due_on",
        "subtotal", "credit_applied", "tax_added", "total", "left",
    )  # fmt: skip
    readonly_fields = fields
    inlines = (LineInline, PaymentInline)
    actions_detail = ("take_back", "dispute", "end_dispute")

    subtotal = cents("subtotal_cents", _("Subtotal"))
    credit_applied = cents("credit_applied_cents", _("Credit applied"))
    tax_added = cents("tax_cents", _("Tax"))
    total = cents("total_cents", _("Total"))

    def get_custom_urls(self) -> tuple[tuple[str, str, Any], ...]:
        """Return the address of the document."""
        return (("<str:invoice_id>/pdf/", "invoicing_invoice_pdf", self.pdf),)

    def pdf(self, request: HttpRequest, invoice_id: str, **_: Any) -> HttpResponseBase:
        """Return the document."""
        found = invoice_by_id(invoice_id)
        if not self.has_view_permission(request, found):
            raise PermissionDenied
        return _file(request, found.number, lambda: invoice_pdf(found))

    @admin.display(description=_("Document"))
    def document(self, row: Invoice) -> str:
        """Return the address of the document."""
        return format_html('<a href="../pdf/">{}.pdf</a>', row.number)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Return the list, its rows with how they stand."""
        found = super().get_changelist_instance(request)
        found.result_list = stood(found.result_list)
        return found

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """Return an invoice with how it stands."""
        found = super().get_object(request, object_id, from_field)
        return found and stood([found])[0]

    @admin.display(description=_("Month"), ordering="starts_on")
    def month(self, row: Invoice) -> str:
        """Return the month."""
        return str(row.period)

    @admin.display(description=_("Left to pay"))
    def left(self, row: Any) -> str:
        """Return what is left."""
        return dollars_of_cents(row.standing.open_cents)

    @admin.display(description=_("Status"))
    def state(self, row: Any) -> str:
        """Return how it stands."""
        return str(STATE_LABELS[row.standing.state(timezone.now().date())])

    def has_take_back_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Only what is left of it is taken back, by who may."""
        may = request.user.has_perm("invoicing.add_creditnote")
        stands = standing_by_id(unquote(object_id))
        return may and stands.credited_cents < stands.invoice.subtotal_cents

    def has_dispute_permission(self, request: HttpRequest, object_id: str) -> bool:
        """What is not disputed may be."""
        may = request.user.has_perm("invoicing.change_dispute")
        return may and not standing_by_id(unquote(object_id)).is_disputed

    def has_end_dispute_permission(self, request: HttpRequest, object_id: str) -> bool:
        """What is disputed may be accepted."""
        may = request.user.has_perm("invoicing.change_dispute")
        return may and standing_by_id(unquote(object_id)).is_disputed

    @action(description=_("Issue credit note"), permissions=["take_back"])
    def take_back(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Issue a credit note over all that is left of it."""
        row = invoice_by_id(unquote(object_id))
        left = dollars_of_cents(sum(left_to_credit(row).values()))
        words = gettext(
            "A credit note over %(amount)s before tax is issued. It lowers what is owed; the rest"
            " becomes credit."
        ) % {"amount": left}
        key = f"admin:{row.id}:{row.credit_notes.count()}"
        verb = partial(
            issue_credit_note, invoice_id=row.id, idempotency_key=key, now=timezone.now()
        )
        confirmation = Confirmation(_("Issue credit note"), words, ReasonForm, verb)
        return confirm(self, request, row, confirmation)

    @action(description=_("Mark as disputed"), permissions=["dispute"])
    def dispute(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Nobody is dunned for it meanwhile."""
        row = invoice_by_id(unquote(object_id))
        words = _("Until the dispute ends, nobody is reminded of this invoice or suspended for it.")
        key = f"{BY_OPERATOR}:{row.disputes.count()}"
        verb = partial(open_dispute, invoice_id=row.id, key=key, now=timezone.now())
        return confirm(
            self, request, row, Confirmation(_("Mark as disputed"), words, ReasonForm, verb)
        )

    @action(description=_("End dispute"), permissions=["end_dispute"])
    def end_dispute(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """It is to be paid again."""
        row = invoice_by_id(unquote(object_id))
        verb = partial(end_disputes, invoice_id=row.id)
        words = _("The invoice is due again, as it was before.")
        return confirm(self, request, row, Confirmation(_("End dispute"), words, ReasonForm, verb))


def end_disputes(*, invoice_id: str, actor: Actor, reason: str) -> None:
    """End every dispute of an invoice."""
    row, now = invoice_by_id(invoice_id), timezone.now()
    for key in row.disputes.filter(closed_at__isnull=True).values_list("key", flat=True):
        close_dispute(invoice_id=invoice_id, key=key, actor=actor, reason=reason, now=now)


@admin.register(CreditNote)
class CreditNoteAdmin(OrganizationOwnedAdmin, ReadOnlyAdmin):
    """Credit notes."""

    list_display = ("number", "owner", "invoice", "total", "reason", "issued_at")
    list_select_related = ("invoice",)
    search_fields = ("number", "organization_id", "invoice__number")
    ordering = ("-issued_at",)
    fields = (
        "number", "document", "owner", "invoice", "issued_at", "issued_by", "reason",
        "net", "tax", "total", "settled",
    )  # fmt: skip
    readonly_fields = fields

    net = cents("net_cents", _("Before tax"))
    tax = cents("tax_cents", _("Tax"))
    total = cents("total_cents", _("Total"))
    settled = dollars("settled_nanos", _("Applied to debt"))

    def get_custom_urls(self) -> tuple[tuple[str, str, Any], ...]:
        """Return the address of the document."""
        return (("<str:note_id>/pdf/", "invoicing_creditnote_pdf", self.pdf),)

    def pdf(self, request: HttpRequest, note_id: str, **_: Any) -> HttpResponseBase:
        """Return the document."""
        found = credit_note_by_id(note_id)
        if not self.has_view_permission(request, found):
            raise PermissionDenied
        return _file(request, found.number, lambda: credit_note_pdf(found))

    @admin.display(description=_("Document"))
    def document(self, row: CreditNote) -> str:
        """Return the address of the document."""
        return format_html('<a href="../pdf/">{}.pdf</a>', row.number)


def _file(request: HttpRequest, number: str, content: Callable[[], bytes]) -> HttpResponseBase:
    return whole_export(
        request, content, content_type="application/pdf", name=f"{number}.pdf", is_inline=True
    )

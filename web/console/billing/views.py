"""Billing: the balance, top-ups, payment methods and payments. Cards are entered only on Stripe's
pages; these views redirect there and handle the return."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from billing.invoicing.invoice_requests import request_invoice
from billing.invoicing.selectors import billing_profile, default_legal_entity
from billing.payments import selectors, syncing
from billing.payments.errors import NotThere, StripeAway
from billing.payments.models import PaymentStatus, StripePayment
from billing.payments.services import start_checkout, top_up
from billing.payments.services.asking import TopUpQuote, quote_top_up
from billing.payments.services.automatic import set_auto_top_up
from billing.payments.services.codes import redeem_code
from billing.payments.services.methods import is_expired, make_default, remove_method
from billing.payments.services.sessions import start_method
from control.errors import Conflict, NotPermitted
from control.permissions import Permission
from serving.contract.money import CENT_NANOS, format_dollars
from web.console.base import PageContext, console_page
from web.console.billing.balance import balance_forecast
from web.console.billing.forms import (
    NEW_METHOD,
    AutoTopUpForm,
    InvoiceRequestForm,
    PromoCodeForm,
    TopUpForm,
)
from web.console.billing.payments import payment_rows
from web.console.binding_limit import binding_limit_view
from web.console.forms import apply_or_form_error, save_edit, status_of
from web.console.past_due import notice_of

POLL_SECONDS = 3
"""The interval at which a page of a pending payment polls."""


@never_cache
@console_page("billing")
def billing(page: PageContext) -> HttpResponse:
    """Show the billing page."""
    return render_billing(page)


@require_POST
@console_page("billing")
def billing_top_up(page: PageContext) -> HttpResponse:
    """Start a top-up and redirect to its page; with tax, ask for confirmation first."""
    form = TopUpForm(page.request.POST, methods=list(methods_of(page)))
    made: list[StripePayment] = []
    quotes: list[TopUpQuote] = []
    if form.is_valid() and apply_or_form_error(form, lambda: quotes.append(quote_for(page, form))):
        (quote,) = quotes
        if quote.tax_cents and not form.agrees_to(quote.total_cents):
            return confirm(page, form, quote)
    if form.is_valid() and apply_or_form_error(
        form, lambda: made.append(request_payment(page, form))
    ):
        return redirect(page.url("billing_payment", made[0].id, go="1"))
    return render_billing(page, top_up=form)


@console_page("billing")
def billing_payments(page: PageContext) -> HttpResponse:
    """List the latest payments."""
    require_money(page, Permission.BILLING_READ)
    return page.render("console/billing/payments.html", {"rows": payment_rows(page, mode())})


@never_cache
@console_page("billing")
def billing_payment(page: PageContext, payment_id: str) -> HttpResponse:
    """Show a payment's status, or go on to Stripe's page, which also returns here."""
    require_money(page, Permission.BILLING_READ)
    payment = selectors.payment(page.organization.id, mode(), payment_id)
    is_leaving = "go" in page.request.GET
    if payment.is_open and not is_leaving:
        refresh(payment)
        payment = selectors.payment(page.organization.id, mode(), payment_id)
    context = {
        "payment": payment,
        "go_url": payment.action_url if payment.is_open else "",
        "is_setting_out": is_leaving and payment.is_open,
        "is_waiting": payment.status == PaymentStatus.CREATED,
        "look_seconds": POLL_SECONDS,
    }
    return page.render("console/billing/payment.html", context)


@require_POST
@console_page("billing")
def billing_automatic(page: PageContext) -> HttpResponse:
    """Set automatic top-ups."""
    form = AutoTopUpForm(page.request.POST)
    if save_edit(
        form,
        page.organization.id,
        lambda: AutoTopUpForm.of(selectors.auto_top_up(page.organization.id)),
        lambda: set_auto_top_up(
            organization=page.organization,
            actor=page.actor,
            now=timezone.now(),
            **form.cleaned_data,
        ),
    ):
        if form.cleaned_data["is_on"]:
            words = gettext("Auto-recharge is on.")
        else:
            words = gettext("Auto-recharge is off.")
        messages.success(page.request, words)
        return redirect(page.url("billing"))
    return render_billing(page, automatic=form)


@require_POST
@console_page("billing")
def billing_code(page: PageContext) -> HttpResponse:
    """Redeem a promotional code."""
    form = PromoCodeForm(page.request.POST)
    got: list[Any] = []
    if form.is_valid() and apply_or_form_error(
        form,
        lambda: got.append(
            redeem_code(
                organization=page.organization,
                user=page.user,
                code=form.cleaned_data["code"],
                now=timezone.now(),
            )
        ),
    ):
        amount = format_dollars(got[0].grant.amount_nanos)
        words = gettext("%(amount)s of credit was added.")
        messages.success(page.request, words % {"amount": amount})
        return redirect(page.url("billing"))
    return render_billing(page, code=form)


@require_POST
@console_page("billing")
def billing_request_invoice(page: PageContext) -> HttpResponse:
    """Ask the operator for an invoice, where payments come by bank transfer."""
    form = InvoiceRequestForm(page.request.POST)
    if form.is_valid() and apply_or_form_error(
        form,
        lambda: request_invoice(
            organization=page.organization,
            actor=page.actor,
            amount_cents=form.cleaned_data["amount_cents"],
            note=form.cleaned_data["note"],
            idempotency_key=form.cleaned_data["form_id"],
            now=timezone.now(),
        ),
    ):
        words = gettext("The operator was asked for an invoice of %(amount)s.")
        amount = format_dollars(form.cleaned_data["amount_cents"] * CENT_NANOS)
        messages.success(page.request, words % {"amount": amount})
        return redirect(page.url("billing"))
    return render_billing(page, invoice=form)


@require_POST
@console_page("billing")
def billing_method_new(page: PageContext) -> HttpResponse:
    """Go to Stripe's page that saves a card or bank account."""
    try:
        url = start_method(organization=page.organization, actor=page.actor, now=timezone.now())
    except (StripeAway, Conflict) as error:
        messages.error(page.request, error.message)
        return redirect(page.url("billing"))
    return page.render("console/billing/leaving.html", {"go_url": url})


@never_cache
@console_page("billing")
def billing_saved(page: PageContext) -> HttpResponse:
    """Handle the return from Stripe's page that saves a payment method."""
    require_money(page, Permission.BILLING_WRITE)
    session_id = page.request.GET.get("session", "")
    try:
        if session_id.startswith("cs_"):
            syncing.sync_session(session_id[:128], now=timezone.now())
    except (StripeAway, NotThere):
        messages.info(page.request, gettext("The payment method appears here in a moment."))
    else:
        messages.success(page.request, gettext("The payment method is saved."))
    return redirect(page.url("billing"))


@require_POST
@console_page("billing")
def billing_method_default(page: PageContext, method_id: str) -> HttpResponse:
    """Make a payment method the default."""
    method = make_default(
        organization=page.organization, method_id=method_id, actor=page.actor, now=timezone.now()
    )
    words = gettext("%(method)s is now the default payment method.")
    messages.success(page.request, words % {"method": method})
    return redirect(page.url("billing"))


@require_POST
@console_page("billing")
def billing_method_remove(page: PageContext, method_id: str) -> HttpResponse:
    """Remove a payment method."""
    remove_method(
        organization=page.organization, method_id=method_id, actor=page.actor, now=timezone.now()
    )
    messages.success(page.request, gettext("The payment method is removed."))
    return redirect(page.url("billing"))


def render_billing(
    page: PageContext,
    *,
    top_up: TopUpForm | None = None,
    automatic: AutoTopUpForm | None = None,
    code: PromoCodeForm | None = None,
    invoice: InvoiceRequestForm | None = None,
) -> HttpResponse:
    """Return the page, with the forms as they were submitted."""
    require_money(page, Permission.BILLING_READ)
    now, has_stripe = timezone.now(), settings.CONFIG.stripe is not None
    methods = list(methods_of(page)) if has_stripe else []
    saved = selectors.auto_top_up(page.organization.id) if has_stripe else None
    forecast = balance_forecast(page.organization, now)
    context = {
        "notice": notice_of(page, now),
        "runway": forecast,
        "binding": binding_limit_view(forecast.binding_limit),
        "has_stripe": has_stripe,
        "is_test": mode() == "test",
        "bank_details": "" if has_stripe else bank_details(page),
        "may_pay": page.may(Permission.BILLING_WRITE),
        "methods": [(each, is_expired(each, now)) for each in methods],
        "auto": saved,
        "top_up": top_up or TopUpForm(methods=methods),
        "automatic": automatic or AutoTopUpForm.of(saved),
        "code": code or PromoCodeForm(),
        "invoice": invoice or InvoiceRequestForm(),
        "support_email": settings.CONFIG.support_email,
    }
    return page.render(
        "console/billing/billing.html", context, status_of(top_up, automatic, code, invoice)
    )


def confirm(page: PageContext, form: TopUpForm, quote: TopUpQuote) -> HttpResponse:
    """Show the total, including tax, before a saved method is charged."""
    names = ("choice", "other", "method", "form_id")
    fields = [(name, form.data.get(name, "")) for name in names]
    context = {
        "quote": quote,
        "method_name": selectors.method(page.organization.id, mode(), form.cleaned_data["method"]),
        "fields": [*fields, ("agreed_cents", quote.total_cents)],
    }
    return page.render("console/billing/agree.html", context)


def quote_for(page: PageContext, form: TopUpForm) -> TopUpQuote:
    """Return the quote for the form's top-up."""
    return quote_top_up(
        organization=page.organization,
        amount_cents=form.amount_cents,
        actor=page.actor,
        now=timezone.now(),
    )


def request_payment(page: PageContext, form: TopUpForm) -> StripePayment:
    """Start the form's payment and return it."""
    common: dict[str, Any] = {
        "organization": page.organization,
        "amount_cents": form.amount_cents,
        "idempotency_key": f"form:{form.cleaned_data['form_id']}"[:64],
        "actor": page.actor,
        "now": timezone.now(),
    }
    chosen = form.cleaned_data["method"]
    if chosen == NEW_METHOD:
        return start_checkout(**common)
    method = selectors.method(page.organization.id, mode(), chosen)
    agreed = form.cleaned_data["agreed_cents"]
    return top_up(method=method, agreed_cents=agreed or form.amount_cents, **common)


def refresh(payment: StripePayment) -> None:
    """Update a payment from Stripe; one not sent yet is left to the outbox."""
    if payment.intent_id is None and payment.checkout_id is None:
        return
    try:
        syncing.sync_payment(payment, now=timezone.now())
    except (StripeAway, NotThere):
        return  # the page shows the last known status


def methods_of(page: PageContext) -> Any:
    """Return the organization's saved methods."""
    return selectors.methods(page.organization.id, mode())


def bank_details(page: PageContext) -> str:
    """Return the bank details of the legal entity that bills this organization."""
    entity = billing_profile(page.organization).legal_entity or default_legal_entity()
    return entity.bank_details.strip() if entity else ""


def mode() -> str:
    """Return the Stripe mode whose rows are shown; empty without Stripe."""
    keys = settings.CONFIG.stripe
    return keys.mode if keys else ""


def require_money(page: PageContext, action: Permission) -> None:
    """Raise NotPermitted without the permission."""
    if not page.may(action):
        raise NotPermitted(gettext("Only owners, admins and billing members can see and do this."))

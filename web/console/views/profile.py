"""The billing profile: whom invoices are for."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from billing.invoicing.selectors import billing_profile
from billing.invoicing.services.profiles import set_billing_profile
from control.permissions import Permission
from web.console.billing.profile import ProfileForm
from web.console.page import ConsolePage, console_page
from web.console.refusals import carried_out
from web.console.views.billing import require_money


@console_page("billing")
def billing_profile_page(page: ConsolePage) -> HttpResponse:
    """Show the profile; a POST changes it."""
    require_money(page, Permission.BILLING_WRITE)
    profile = billing_profile(page.organization)
    if page.request.method != "POST":
        return show(page, ProfileForm.of(profile))
    form = ProfileForm(page.request.POST)
    if form.is_valid() and carried_out(
        form,
        lambda: set_billing_profile(
            organization=page.organization, actor=page.actor, changes=form.cleaned_data
        ),
    ):
        messages.success(page.request, "The profile is saved; the next invoice carries it.")
        return redirect(page.url("billing_profile"))
    return show(page, form)


def show(page: ConsolePage, form: ProfileForm) -> HttpResponse:
    """Return the page with the form as it was sent."""
    context = {"form": form, "profile": billing_profile(page.organization)}
    return page.render("console/billing/profile.html", context, 400 if form.errors else 200)

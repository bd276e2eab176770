"""Rate limits: where the organization stands, what it uses now, and limits of projects and keys."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from control.limits.rate_limits import set_own_limits
from web.console.page import ConsolePage, console_page
from web.console.rates.rows import form_of, rates_view
from web.console.refusals import carried_out


@console_page("rates")
def rates(page: ConsolePage) -> HttpResponse:
    """Every rate limit with how it stands; a POST sets those of a project or a key."""
    form = None
    if page.request.method == "POST":
        form = form_of(page, page.request.POST)
        if form.is_valid() and carried_out(
            form,
            lambda: set_own_limits(
                actor=page.actor,
                organization=page.organization,
                owner_id=form.cleaned_data["owner"],
                figures=form.figures,
            ),
        ):
            messages.success(page.request, "The limits are in force within a second.")
            return redirect(page.url("rates"))
    status = 400 if form is not None else 200
    return page.render("console/rates.html", {"rates": rates_view(page, form)}, status)

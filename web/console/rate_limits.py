"""Rate limits of the organization, its projects and its keys: forms, rows and the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from control.api_keys.models import ApiKey
from control.forms import VersionedForm
from control.limits import rate_limits
from control.limits.live_usage import LimitSubject, LimitUsage, read_usage
from control.limits.models import LIMIT_MAX, RATE_LIMIT_FIELDS
from control.limits.rate_limits import set_own_limits
from control.limits.spending import Owner, limit_owners
from control.organizations.models import Project
from control.permissions import Permission
from serving.contract.records import RateLimitSettings
from web.console.base import PageContext, console_page
from web.console.forms import save_edit, status_of
from web.console.labels import key_name

LABELS = {
    "requests_per_minute": _("Requests per minute"),
    "input_tokens_per_minute": _("Input tokens per minute"),
    "output_tokens_per_minute": _("Output tokens per minute"),
    "concurrent_requests": _("Concurrent requests"),
}


def figure(name: str) -> forms.IntegerField:
    """Return the field of one limit; empty for no limit."""
    return forms.IntegerField(
        label=LABELS[name], required=False, min_value=1, max_value=LIMIT_MAX,
        widget=forms.NumberInput(attrs={"autocomplete": "off"}),
    )  # fmt: skip


class RateLimitsForm(VersionedForm):
    """The four limits of a project or a key."""

    owner = forms.ChoiceField(label=_("Applies to"))
    requests_per_minute = figure("requests_per_minute")
    input_tokens_per_minute = figure("input_tokens_per_minute")
    output_tokens_per_minute = figure("output_tokens_per_minute")
    concurrent_requests = figure("concurrent_requests")
    shown_owner = forms.CharField(required=False, widget=forms.HiddenInput)
    unversioned = frozenset({"owner", "shown_owner"})

    def __init__(self, *args: Any, owners: Sequence[tuple[str, Any]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["owner"] = forms.ChoiceField(label=_("Applies to"), choices=list(owners))
        self.fields["input_tokens_per_minute"].help_text = _("Cached tokens do not count.")
        self.fields["concurrent_requests"].help_text = _("Leave empty for no limit of its own.")

    def _stale_message(self, data: QueryDict) -> str:
        owner = self.cleaned_data["owner"]
        if self.cleaned_data["shown_owner"] == owner:
            return super()._stale_message(data)
        data["shown_owner"] = owner
        message = gettext(
            "%(owner)s has other limits than the page showed, so nothing was saved. Look at the"
            " marked fields, then save again: what is filled in here replaces what is there now."
        )
        return message % {"owner": self._words("owner", owner)}

    @property
    def figures(self) -> dict[str, int | None]:
        """The limits by their contract names."""
        return {name: self.cleaned_data[name] for name in RATE_LIMIT_FIELDS}


WARN_PERCENT = 80
WORDS = dict(
    zip(("requests", "input_tokens", "output_tokens", "concurrent"), LABELS.values(), strict=True)
)


@dataclass(frozen=True, slots=True)
class RateLimitGauge:
    """One limit as a bar."""

    use: LimitUsage

    @property
    def words(self) -> str:
        """The label of the limit."""
        return str(WORDS[self.use.measure])

    @property
    def width(self) -> int:
        """The bar's width in percent, at most 100."""
        return min(self.use.percent or 0, 100)

    @property
    def level(self) -> str:
        """The severity: `good`, `warn` or `bad`."""
        percent = self.use.percent or 0
        if percent >= 100:
            return "bad"
        return "warn" if percent >= WARN_PERCENT else "good"


@dataclass(frozen=True, slots=True)
class RateLimitRow:
    """The owner of limits, with a gauge for each; `url` is the page to change them."""

    name: str
    note: str
    gauges: list[RateLimitGauge]
    url: str = ""


@dataclass(frozen=True, slots=True)
class RatesView:
    """The context of `console/rates.html`, as `rates`."""

    standing: rate_limits.UsageTierStatus
    rows: list[RateLimitRow]
    is_known: bool
    """Whether Redis returned the usage."""
    may_set: bool
    form: RateLimitsForm


def rates_view(page: PageContext, form: RateLimitsForm | None = None) -> RatesView:
    """Return the page's context, with the form as it was submitted."""
    owners = limit_owners(page.organization, page.projects)
    own = rate_limits.all_own_limits(page.organization)
    listed = [*_organization_rows(page), *_owner_rows(page, owners, own)]
    uses = read_usage(subject for _, subject in listed)
    rows = [
        RateLimitRow(row.name, row.note, [RateLimitGauge(one) for one in use], row.url)
        for (row, _), use in zip(listed, uses, strict=True)
    ]
    return RatesView(
        standing=rate_limits.usage_tier_status(page.organization, with_money=page.may_see_money),
        rows=[row for row in rows if row.gauges],
        is_known=all(use.used is not None for each in uses for use in each),
        may_set=page.may(Permission.LIMITS_WRITE),
        form=form or _form_with_limits(owners, own, page.request.GET.get("owner", "")),
    )


def form_of(page: PageContext, data: Any) -> RateLimitsForm:
    """Return the form as it was submitted."""
    return RateLimitsForm(data, owners=_choices(limit_owners(page.organization, page.projects)))


def _organization_rows(page: PageContext) -> list[tuple[RateLimitRow, LimitSubject]]:
    return [
        (
            RateLimitRow(row.model_name or page.organization.name, _note(row), []),
            LimitSubject(page.organization.id, row.limits, row.model_id),
        )
        for row in rate_limits.effective_limits(page.organization)
    ]


def _note(row: rate_limits.EffectiveLimits) -> str:
    if row.model_id and row.is_own:
        return gettext("Organization, on this model, agreed with you")
    if row.model_id:
        return gettext("Organization, on this model")
    return gettext("Organization, agreed with you") if row.is_own else gettext("Organization")


def _owner_rows(
    page: PageContext, owners: Sequence[Owner], own: Mapping[str, RateLimitSettings]
) -> list[tuple[RateLimitRow, LimitSubject]]:
    return [
        (
            RateLimitRow(
                _label(owner), _kind(owner), [], page.url("rates", owner=owner.id) + "#set"
            ),
            LimitSubject(owner.id, own[owner.id]),
        )
        for owner in owners
        if owner.id in own
    ]


def _label(owner: Owner) -> str:
    return key_name(owner) if isinstance(owner, ApiKey) else owner.name


def _kind(owner: Owner) -> str:
    return gettext("Project") if isinstance(owner, Project) else gettext("API key")


def _form_with_limits(
    owners: Sequence[Owner], own: Mapping[str, RateLimitSettings], owner_id: str
) -> RateLimitsForm:
    """Return the form with the present limits of an owner, by default of the first project."""
    owner_id = owner_id or next((one.id for one in owners if isinstance(one, Project)), "")
    limits = own.get(owner_id, RateLimitSettings())
    figures = {name: getattr(limits, name) for name in RATE_LIMIT_FIELDS}
    return RateLimitsForm(
        owners=_choices(owners), initial={"owner": owner_id, "shown_owner": owner_id, **figures}
    )


def _choices(owners: Sequence[Owner]) -> list[tuple[str, Any]]:
    projects = [(each.id, each.name) for each in owners if isinstance(each, Project)]
    keys = [(each.id, key_name(each)) for each in owners if isinstance(each, ApiKey)]
    return [(gettext("Projects"), projects), *([(gettext("API keys"), keys)] if keys else [])]


@console_page("rates")
def rates(page: PageContext) -> HttpResponse:
    """Show every rate limit with its usage; a POST sets those of a project or a key."""
    form = None
    if page.request.method == "POST":
        form = form_of(page, page.request.POST)
        owners = limit_owners(page.organization, page.projects)
        if save_edit(
            form,
            page.organization.id,
            lambda: _form_with_limits(
                owners,
                rate_limits.all_own_limits(page.organization),
                form.cleaned_data["owner"],
            ),
            lambda: set_own_limits(
                actor=page.actor,
                organization=page.organization,
                owner_id=form.cleaned_data["owner"],
                figures=form.figures,
            ),
        ):
            messages.success(page.request, gettext("The limits are in force within a second."))
            return redirect(page.url("rates"))
    return page.render("console/rates.html", {"rates": rates_view(page, form)}, status_of(form))

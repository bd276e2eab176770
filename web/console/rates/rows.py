"""What the page of rate limits shows: where the organization stands, and a gauge for each limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from control.api_keys.models import ApiKey
from control.limits import rate_limits
from control.limits.live_usage import LimitSubject, LimitUsage, read_usage
from control.limits.models import RATE_LIMIT_FIELDS
from control.limits.spending import Owner, limit_owners
from control.organizations.models import Project
from control.permissions import Permission
from web.console.page import ConsolePage
from web.console.rates.forms import LABELS, RatesForm

WARN_PERCENT = 80
WORDS = dict(
    zip(("requests", "input_tokens", "output_tokens", "concurrent"), LABELS.values(), strict=True)
)


@dataclass(frozen=True, slots=True)
class Gauge:
    """One limit as a bar."""

    use: LimitUsage

    @property
    def words(self) -> str:
        """What is limited."""
        return WORDS[self.use.measure]

    @property
    def width(self) -> int:
        """The bar's width in percent: never beyond its end."""
        return min(self.use.percent or 0, 100)

    @property
    def level(self) -> str:
        """How grave it is: `good`, `warn` or `bad`."""
        percent = self.use.percent or 0
        if percent >= 100:
            return "bad"
        return "warn" if percent >= WARN_PERCENT else "good"


@dataclass(frozen=True, slots=True)
class Row:
    """Whose limits, with a gauge for each; `url` is where members change them."""

    name: str
    note: str
    gauges: list[Gauge]
    url: str = ""


@dataclass(frozen=True, slots=True)
class RatesView:
    """All that `console/rates.html` needs, as `rates`."""

    standing: rate_limits.UsageTierStatus
    rows: list[Row]
    is_known: bool
    """Whether Redis told how much is used."""
    may_set: bool
    form: RatesForm


def rates_view(page: ConsolePage, form: RatesForm | None = None) -> RatesView:
    """Return what the page shows; the form as it was sent."""
    limited = limit_owners(page.organization, page.projects)
    listed = [*_of_organization(page), *_of_owners(page, limited)]
    uses = read_usage(subject for _, subject in listed)
    rows = [
        Row(row.name, row.note, [Gauge(one) for one in use], row.url)
        for (row, _), use in zip(listed, uses, strict=True)
    ]
    return RatesView(
        standing=rate_limits.usage_tier_status(page.organization, with_money=page.may_see_money),
        rows=[row for row in rows if row.gauges],
        is_known=all(use.used is not None for each in uses for use in each),
        may_set=page.may(Permission.LIMITS_WRITE),
        form=form or _empty_form(page, limited),
    )


def form_of(page: ConsolePage, data: Any) -> RatesForm:
    """Return the form as it was sent."""
    return RatesForm(data, owners=_choices(limit_owners(page.organization, page.projects)))


def _of_organization(page: ConsolePage) -> list[tuple[Row, LimitSubject]]:
    return [
        (
            Row(row.model_name or page.organization.name, _note(row), []),
            LimitSubject(page.organization.id, row.limits, row.model_id),
        )
        for row in rate_limits.effective_limits(page.organization)
    ]


def _note(row: rate_limits.EffectiveLimits) -> str:
    of_what = "Organization, on this model" if row.model_id else "Organization"
    return f"{of_what}, agreed with you" if row.is_own else of_what


def _of_owners(page: ConsolePage, limited: Sequence[Owner]) -> list[tuple[Row, LimitSubject]]:
    own = rate_limits.all_own_limits(page.organization)
    return [
        (
            Row(one.name, _kind(one), [], page.url("rates", owner=one.id) + "#set"),
            LimitSubject(one.id, own[one.id]),
        )
        for one in limited
        if one.id in own
    ]


def _kind(one: Owner) -> str:
    return "Project" if isinstance(one, Project) else "API key"


def _empty_form(page: ConsolePage, limited: Sequence[Owner]) -> RatesForm:
    """Return the form, filled with what holds now for whom the address names."""
    asked = page.request.GET.get("owner", "")
    known = rate_limits.own_limits(page.organization, asked)
    figures = {name: getattr(known, name) for name in RATE_LIMIT_FIELDS}
    return RatesForm(owners=_choices(limited), initial={"owner": asked, **figures})


def _choices(limited: Sequence[Owner]) -> list[tuple[str, Any]]:
    projects = [(one.id, one.name) for one in limited if isinstance(one, Project)]
    keys = [(one.id, one.name) for one in limited if isinstance(one, ApiKey)]
    return [("Projects", projects), *([("API keys", keys)] if keys else [])]

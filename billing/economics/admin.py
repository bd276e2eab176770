"""The operator's view of engines: what each counted by the hour, beside what was booked."""

from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.economics import focus_admin, replay_admin  # noqa: F401 -- their pages
from billing.economics.models import EngineLife
from billing.economics.pages.margin import MarginPage
from billing.economics.pages.reconciliation import ReconciliationPage
from billing.economics.reconciliation import Reconciled, reconcile
from control.admin.base import ReadOnlyAdmin

SHOWN = timedelta(hours=24)
"""How much of a life its page shows: the last of it."""
HEAD = (
    _("Hour (UTC)"),
    _("Engine: input, output"),
    _("Events: input, output"),
    _("Difference"),
    _("Unexplained"),
    _("Possible reasons, and how much at most"),
)


@admin.register(EngineLife)
class EngineLifeAdmin(ReadOnlyAdmin):
    """Engines, the newest first, each with its reconciliation."""

    list_display = ("replica_id", "deployment_id", "started_at", "ended_at")
    fields = ("replica_id", "deployment_id", "fleet_id", "started_at", "ended_at", "reconciliation")
    readonly_fields = fields
    search_fields = ("=replica_id", "=deployment_id")
    ordering = ("-started_at",)
    show_full_result_count = False

    def get_custom_urls(self) -> tuple[tuple[str, str, Any], ...]:
        """Return the addresses of the pages that engines are the ground of."""
        return (
            ("margin/", "economics_margin", MarginPage.as_view(model_admin=self)),
            (
                "reconciliation/",
                "economics_reconciliation",
                ReconciliationPage.as_view(model_admin=self),
            ),
        )

    @admin.display(description=_("Reconciliation of the last 24 hours"))
    def reconciliation(self, row: EngineLife) -> str:
        """Return a row per hour: engine, events, the difference and its reasons."""
        now = timezone.now()
        end = next_hour(min(row.ended_at or now, now))
        found = reconcile(end - SHOWN, end, now=now, replica_id=row.replica_id)
        return table(found) if found else gettext("Nothing was counted.")


def next_hour(moment: datetime) -> datetime:
    """Return the full hour after a moment."""
    return moment.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


def table(hours: list[Reconciled]) -> SafeString:
    """Return reconciled hours as a table, the newest first."""
    head = format_html_join("", "<th>{}</th>", ((words,) for words in HEAD))
    rows = format_html_join(
        "",
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        (_cells(one) for one in reversed(hours)),
    )
    return format_html('<table class="figures"><tr>{}</tr>{}</table>', head, rows)


def _cells(one: Reconciled) -> tuple[str, ...]:
    engine, events = one.engine, one.events
    unexplained = _pair(one.unexplained_input_tokens, one.unexplained_output_tokens, "+,")
    if one.is_alarming:
        unexplained = gettext("%(tokens)s ALARM") % {"tokens": unexplained}
    return (
        f"{engine.hour_at:%Y-%m-%d %H:%M}",
        _pair(engine.input_tokens, engine.output_tokens, ","),
        _pair(events.input_tokens, events.output_tokens, ","),
        _pair(one.input_difference_tokens, one.output_difference_tokens, "+,"),
        unexplained,
        "; ".join(
            f"{reason.words}: {_pair(reason.input_tokens, reason.output_tokens, ',')}"
            for reason in one.reasons
        ),
    )


def _pair(input_tokens: int, output_tokens: int, form: str) -> str:
    return f"{input_tokens:{form}}, {output_tokens:{form}}"

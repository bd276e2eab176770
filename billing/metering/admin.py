"""The operator's view of usage: events, and what could not be booked."""

from functools import partial

from django.contrib import admin
from django.db.models import QuerySet
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action

from billing.metering.batch import AGE_MAX
from billing.metering.event_list import (
    FaultFilter,
    LetterFilter,
    OutcomeFilter,
    PatientPaginator,
    WithinFilter,
)
from billing.metering.models import Day, DeadLetter, ResentUsage, UsageCorrection, UsageEvent
from billing.metering.services import book_again, dismiss
from control.admin.base import ReadOnlyAdmin
from control.admin.confirm import Confirmation, ReasonForm, confirm
from control.admin.fields import displayed, dollars, milliseconds


@admin.register(UsageEvent)
class UsageEventAdmin(ReadOnlyAdmin):
    """Usage events, the newest first. They hold no content."""

    list_display = (
        "received", "organization_id", "item", "outcome", "input_tokens",
        "cached_input_tokens", "output_tokens", "charged", "fault",
    )  # fmt: skip
    fields = (
        "event_id", "client_request_id", "received", "accounted_on", "outcome", "fault",
        "charged", "waived", "input", "cached_input", "output", "input_tokens",
        "cached_input_tokens", "output_tokens", "reasoning_tokens", "queue_time", "ttft",
        "total_time", "streamed", "organization_id", "project", "key", "of_model", "variant",
        "endpoint", "tier", "price", "rating", "gateway", "deployment", "replica", "lease_ids",
        "lease_nanos",
    )  # fmt: skip
    readonly_fields = fields
    list_filter = (WithinFilter, OutcomeFilter, FaultFilter)
    paginator = PatientPaginator
    list_select_related = ("caller", "supply", "origin")
    search_fields = ("=event_id", "=organization_id")
    ordering = ("-event_id",)
    show_full_result_count = False

    received = displayed("received_at", _("Received"))
    charged = dollars("charged_nanos", _("Charged"), is_stored=False)
    waived = dollars("waived_nanos", _("Waived"), is_stored=False)
    input = dollars("input_nanos", _("Input"))
    cached_input = dollars("cached_input_nanos", _("Cached input"))
    output = dollars("output_nanos", _("Output"))
    queue_time = milliseconds("queue_seconds", _("Queue time"))
    ttft = milliseconds("ttft_seconds", _("Time to first token"))
    total_time = milliseconds("total_seconds", _("Total time"))
    project = displayed("caller.project_id", _("Project"))
    key = displayed("caller.key_id", _("Key"))
    item = displayed("supply", _("Billable item"), ordering="supply")
    of_model = displayed("supply.model_id", _("Model"))
    variant = displayed("supply.variant_id", _("Variant"))
    endpoint = displayed("supply.endpoint", _("Endpoint"))
    tier = displayed("supply.tier", _("Tier"))
    price = displayed("supply.price_id", _("Price"))
    gateway = displayed("origin.gateway_id", _("Gateway"))
    deployment = displayed("origin.deployment_id", _("Deployment"))
    replica = displayed("origin.replica_id", _("Replica"))


@admin.register(UsageCorrection)
class UsageCorrectionAdmin(UsageEventAdmin):
    """What requests really came to that were first reported as lost."""


@admin.register(ResentUsage)
class ResentUsageAdmin(ReadOnlyAdmin):
    """What each gateway sent again after the database was promoted or restored."""

    list_display = ("gateway_id", "shipped", "sent_again", "missing", "finished")
    fields = (*list_display, "lineage")
    readonly_fields = fields
    ordering = ("-missing_count", "gateway_id")

    shipped = displayed("shipped_at", _("Last shipment"))
    sent_again = displayed("event_count", _("Sent again"))
    missing = displayed("missing_count", _("Missing here"))
    finished = displayed("finished_at", _("Finished"))


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    """Events that could not be booked, as they came: booked again, or dismissed with a reason."""

    list_display = (
        "received_at", "gateway_id", "event_id", "reason", "recorded", "dismissed_at",
    )  # fmt: skip
    list_filter = (LetterFilter,)
    search_fields = ("event_id", "reason")
    ordering = ("-received_at",)
    fields = (
        "received_at", "gateway_id", "event_id", "reason", "text", "booked_at", "dismissed_at",
    )  # fmt: skip
    readonly_fields = ("text",)
    column_labels = {"booked_at": _("Recorded at")}
    actions = ("book",)
    actions_detail = ("book_one", "dismiss")

    recorded = displayed("booked_at", _("Recorded at"), ordering="booked_at")

    @admin.display(description=_("payload"))
    def text(self, letter: DeadLetter) -> str:
        """Return the bytes as text."""
        return bytes(letter.payload).decode(errors="replace")

    def has_settle_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Only who may change dead letters books or dismisses them; booked ones are settled."""
        may = request.user.has_perm("metering.change_deadletter")
        if object_id is None or not may:
            return may
        return DeadLetter.objects.filter(pk=object_id, booked_at__isnull=True).exists()

    @admin.action(description=_("Retry"), permissions=["settle"])
    def book(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> None:
        """Send the selected events through ingest once more."""
        self.carry_out(
            request, queryset, _("%(row)s is recorded."),
            lambda actor, row: book_again(actor=actor, letter=row, now=timezone.now()),
        )  # fmt: skip

    @action(description=_("Retry"), permissions=["settle"])
    def book_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask once, and send the event through ingest once more."""
        letter = self._letter(object_id)
        words = gettext(
            "This event was not recorded because: %(reason)s. Recorded now, it is charged to the"
            " organization it names, in the period it was received in."
        ) % {"reason": letter.reason}
        verb = partial(book_again, letter=letter, now=timezone.now())
        return confirm(self, request, letter, Confirmation(_("Retry"), words, Form, verb))

    @action(description=_("Dismiss"), permissions=["settle"])
    def dismiss(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Note, with the reason, that the event is never to be booked."""
        letter = self._letter(object_id)
        words = gettext(
            "This event was not recorded because: %(reason)s. If you dismiss it, nobody is charged"
            " for it and it needs no more attention. It is kept, and you can still retry it while"
            " its request is less than %(days)s days old."
        ) % {"reason": letter.reason, "days": AGE_MAX.days}
        verb = partial(dismiss, letter_id=letter.pk, now=timezone.now())
        return confirm(self, request, letter, Confirmation(_("Dismiss"), words, ReasonForm, verb))

    def _letter(self, object_id: str) -> DeadLetter:
        return get_object_or_404(DeadLetter, pk=object_id)


@admin.register(Day)
class DayAdmin(ReadOnlyAdmin):
    """Days of the books, the newest first: closed, sealed, archived."""

    list_display = ("day", "closed_at", "sealed_at", "event_count", "checked_at", "archived_at")
    fields = (
        "day", "closed_at", "sealed_at", "event_count", "checked_at", "archived_at",
        "archive_path", "dropped_at",
    )  # fmt: skip
    ordering = ("-day",)

"""The operator's view of usage: events, alarms, and what could not be booked."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from billing.metering.models import DeadLetter, Tally, UsageEvent
from billing.metering.services import book_again
from control.operator_admin import ReadOnlyAdmin
from control.operator_fields import dollars, milliseconds


@admin.register(UsageEvent)
class UsageEventAdmin(ReadOnlyAdmin):
    """Usage events, the newest first. They hold no content."""

    list_display = (
        "received_at", "organization_id", "endpoint", "outcome", "input_tokens",
        "cached_input_tokens", "output_tokens", "charged",
    )  # fmt: skip
    fields = (
        "event_id", "client_request_id", "received_at", "outcome", "charged", "waived",
        "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens", "queue_time",
        "ttft", "total_time", "streamed", "endpoint", "tier", "organization_id", "project_id",
        "key_id", "model_id", "variant_id", "deployment_id", "replica_id", "gateway_id",
        "price_id", "transaction_id", "lease_ids",
    )  # fmt: skip
    readonly_fields = fields
    list_filter = ("outcome", "tier", "endpoint")
    search_fields = ("=event_id", "=organization_id")
    ordering = ("-event_id",)
    show_full_result_count = False

    charged = dollars("charged_nanos", "Charged")
    waived = dollars("waived_nanos", "Waived")
    queue_time = milliseconds("queue_seconds", "Queue time")
    ttft = milliseconds("ttft_seconds", "Time to first token")
    total_time = milliseconds("total_seconds", "Total time")


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    """Events that could not be booked, as they came."""

    list_display = ("received_at", "gateway_id", "event_id", "reason", "booked_at")
    search_fields = ("event_id", "reason")
    ordering = ("-received_at",)
    fields = ("received_at", "gateway_id", "event_id", "reason", "text", "booked_at")
    readonly_fields = ("text",)
    actions = ("book",)

    @admin.display(description="payload")
    def text(self, letter: DeadLetter) -> str:
        """Return the bytes as text."""
        return bytes(letter.payload).decode(errors="replace")

    @admin.action(description="Try to book again")
    def book(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> None:
        """Send the selected events through ingest once more."""
        self.carry_out(
            request, queryset, "is booked",
            lambda actor, row: book_again(actor=actor, letter=row, now=timezone.now()),
        )  # fmt: skip


@admin.register(Tally)
class TallyAdmin(ReadOnlyAdmin):
    """Alarms by day."""

    list_display = ("day", "kind", "organization_id", "count")
    list_filter = ("kind",)
    ordering = ("-day", "kind")

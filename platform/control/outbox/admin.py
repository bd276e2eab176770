"""The operators' view of the outbox: waiting and failed messages, and retries."""

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action

from control.admin.base import OperatorPage, ReadOnlyAdmin
from control.admin.fields import indented
from control.outbox import services
from control.outbox.models import OPEN, OutboxMessage
from control.outbox.services import messages, queue_stats

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

SHOWN_MAX = 50
STATES = {
    "waiting": (_("Waiting"), OPEN),
    "failing": (_("Failed, being retried"), OPEN & ~Q(last_error="")),
    "given_up": (_("Given up"), Q(given_up_at__isnull=False)),
    "delivered": (_("Delivered"), Q(delivered_at__isnull=False)),
}


class OutboxPage(OperatorPage):
    """The statistics of each kind of message, and the messages that were given up."""

    title = _("Outbox")
    purpose = _(
        "Emails, webhooks and calls on their way out of this platform. Each is retried until it is"
        " delivered; messages that can't be delivered are given up and stay here until you retry"
        " them."
    )
    permission_required = "outbox.view_outboxmessage"
    template_name = "outbox/standing.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the kinds, and the messages that need an operator."""
        rows = [
            {
                "standing": each,
                "waiting_url": list_url(each.kind, "waiting"),
                "failing_url": list_url(each.kind, "failing"),
                "given_up_url": list_url(each.kind, "given_up"),
            }
            for each in queue_stats(timezone.now())
        ]
        given_up = messages().filter(given_up_at__isnull=False)[:SHOWN_MAX]
        return super().get_context_data(
            **kwargs, rows=rows, given_up=given_up, all_url=list_url("", "")
        )


def list_url(kind: str, state: str) -> str:
    """Return the URL of the list of messages of a kind and a state; empty values filter nothing."""
    chosen = {"kind__exact": kind, "state": state}
    query = urlencode({name: value for name, value in chosen.items() if value})
    address = reverse("admin:outbox_outboxmessage_changelist")
    return f"{address}?{query}" if query else address


class StateFilter(admin.SimpleListFilter):
    """A filter by state: waiting, failing, given up or delivered."""

    title = _("status")
    parameter_name = "state"

    def lookups(
        self, request: HttpRequest, model_admin: object
    ) -> list[tuple[str, "StrOrPromise"]]:
        return [(name, words) for name, (words, _) in STATES.items()]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[OutboxMessage]
    ) -> QuerySet[OutboxMessage]:
        chosen = STATES.get(self.value() or "")
        return queryset.filter(chosen[1]) if chosen else queryset


@admin.register(OutboxMessage)
class OutboxMessageAdmin(ReadOnlyAdmin):
    """Outbox messages. Payloads hold ids; secrets in them are encrypted."""

    list_display = (
        "kind", "key", "organization_id", "created_at", "attempts", "due_at", "delivered_at",
        "given_up_at", "last_error",
    )  # fmt: skip
    list_filter = (StateFilter, "kind")
    search_fields = ("=key", "=organization_id", "=lane")
    ordering = ("-id",)
    show_full_result_count = False
    fields = (
        "kind", "key", "organization_id", "lane", "created_at", "started_at", "due_at", "attempts",
        "claimed_until", "delivered_at", "given_up_at", "last_error", "content",
    )  # fmt: skip
    readonly_fields = ("content",)
    actions = ("retry",)
    actions_detail = ("retry_one",)

    @admin.display(description=_("payload"))
    def content(self, message: OutboxMessage) -> str:
        """Return the payload as indented JSON."""
        return indented(message.payload)

    def has_retry_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Allow operators who may change messages to retry those that are not delivered."""
        may = request.user.has_perm("outbox.change_outboxmessage")
        if object_id is None or not may:
            return may
        return OutboxMessage.objects.filter(pk=object_id, delivered_at__isnull=True).exists()

    @admin.action(description=_("Retry now"), permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: QuerySet[OutboxMessage]) -> None:
        self.carry_out(
            request, queryset, _("%(row)s is being retried."),
            lambda actor, row: services.retry(actor=actor, message=row, now=timezone.now()),
        )  # fmt: skip

    @action(description=_("Retry now"), permissions=["retry"])
    def retry_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for confirmation; on POST, retry the message."""
        message = get_object_or_404(OutboxMessage, pk=object_id)
        if request.method == "POST":
            self.retry(request, OutboxMessage.objects.filter(pk=message.pk))
            return redirect("admin:outbox_outboxmessage_change", message.pk)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "original": message,
            "title": _("Retry now"),
        }
        return TemplateResponse(request, "outbox/retry.html", context)

    def get_custom_urls(self) -> tuple[tuple[str, str, Any], ...]:
        """Return the URL of the statistics page."""
        return (("standing/", "outbox_standing", OutboxPage.as_view(model_admin=self)),)

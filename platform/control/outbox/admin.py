"""The operator's view of the outbox: what waits, what failed, and another try."""

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.utils import timezone
from unfold.decorators import action

from control.admin.fields import indented
from control.admin.rows import ReadOnlyAdmin
from control.outbox import services
from control.outbox.models import OPEN, Message
from control.outbox.page import OutboxPage

STATES = {
    "waiting": ("Waiting", OPEN),
    "failing": ("Failed, tried again", OPEN & ~Q(last_error="")),
    "given_up": ("Given up", Q(given_up_at__isnull=False)),
    "delivered": ("Delivered", Q(delivered_at__isnull=False)),
}


class StateFilter(admin.SimpleListFilter):
    """Open, failing, given up or delivered."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        """Return the choices."""
        return [(name, words) for name, (words, _) in STATES.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        """Return the messages in the chosen state."""
        chosen = STATES.get(self.value() or "")
        return queryset.filter(chosen[1]) if chosen else queryset


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    """Messages to the outside. Payloads hold ids; what is secret in them is encrypted."""

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

    @admin.display(description="payload")
    def content(self, message: Message) -> str:
        """Return the payload as a block."""
        return indented(message.payload)

    def has_retry_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Only who may change messages retries them; delivered ones are done."""
        may = request.user.has_perm("outbox.change_message")
        if object_id is None or not may:
            return may
        return Message.objects.filter(pk=object_id, delivered_at__isnull=True).exists()

    @admin.action(description="Try again now", permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Message]) -> None:
        """Try the selected messages again."""
        self.carry_out(
            request, queryset, "is tried again",
            lambda actor, row: services.retry(actor=actor, message=row, now=timezone.now()),
        )  # fmt: skip

    @action(description="Try again now", permissions=["retry"])
    def retry_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask once, and try the message again."""
        message = get_object_or_404(Message, pk=object_id)
        if request.method == "POST":
            self.retry(request, Message.objects.filter(pk=message.pk))
            return redirect("admin:outbox_message_change", message.pk)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "original": message,
            "title": "Try again now",
        }
        return TemplateResponse(request, "outbox/retry.html", context)

    def get_custom_urls(self) -> tuple[tuple[str, str, Any], ...]:
        """Return the address of the page of how the kinds stand."""
        return (("standing/", "outbox_standing", OutboxPage.as_view(model_admin=self)),)

"""The operator's view of usage processing: integrity checks, and how far each consumer has read."""

from django.contrib import admin

from billing.following.models import Cursor, Proof
from control.admin.base import ReadOnlyAdmin


@admin.register(Proof)
class ProofAdmin(ReadOnlyAdmin):
    """Runs of the integrity checks, the newest first."""

    list_display = ("made_at", "check_count", "failed_count")
    fields = ("made_at", "check_count", "failed_count")


@admin.register(Cursor)
class CursorAdmin(ReadOnlyAdmin):
    """Consumers of usage events, and until when each has read them."""

    list_display = ("name", "followed_at", "head_at")
    fields = ("name", "followed_at", "head_at")
    ordering = ("name",)

"""The operators' view of the audit log."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.utils.html import format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from control.admin.base import ReadOnlyAdmin
from control.audit.changes import changes_of
from control.audit.models import AuditEvent, ChainVerification
from control.audit.pseudonyms import NameResolver, by_people_named


class NamedChangeList(ChangeList):
    """A page of audit events with the names of the people in them."""

    def get_results(self, request: Any) -> None:
        """Load the rows, and all names in them at once."""
        super().get_results(request)
        names = NameResolver(self.result_list)
        for event in self.result_list:
            event.names = names


def names_of(event: AuditEvent) -> NameResolver:
    """Return the names loaded with an audit event, or load them."""
    return getattr(event, "names", None) or NameResolver([event])


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    """Audit events."""

    list_display = (
        "created_at", "by", "action", "target", "organization_id", "address", "request_id",
    )  # fmt: skip
    list_filter = ("action", "actor_kind")
    search_fields = (
        "actor_name",
        "target_name",
        "target_id",
        "organization_id",
        "address",
        "request_id",
    )
    search_help_text = _("Search by person, target, organization, IP address or request")
    fields = (
        "created_at", "by", "actor_kind", "actor_id", "action", "target_kind", "target",
        "target_id", "organization_id", "changes", "told", "address", "request_id", "digest",
    )  # fmt: skip
    readonly_fields = ("by", "target", "changes", "told", "digest")
    list_select_related = ("link",)

    def get_changelist(self, request: Any, **options: Any) -> type[ChangeList]:
        """Return the list that loads all names at once."""
        return type("Named", (NamedChangeList, super().get_changelist(request, **options)), {})

    def get_search_results(self, request: Any, queryset: Any, search_term: str) -> Any:
        """Find audit events also by the people in them, whom they hold by reference."""
        found, may_repeat = super().get_search_results(request, queryset, search_term)
        if search_term.strip():
            found |= queryset.filter(by_people_named(search_term.strip()))
        return found, may_repeat

    @admin.display(description=_("By"))
    def by(self, row: AuditEvent) -> str:
        """Return the name of the actor."""
        return names_of(row).actor(row)

    @admin.display(description=_("Target"), ordering="target_name")
    def target(self, row: AuditEvent) -> str:
        """Return the name of the target, or its id where it has none."""
        return names_of(row).target(row) or row.target_id

    @admin.display(description=_("Changes"))
    def changes(self, row: AuditEvent) -> str:
        """Return what changed, in words."""
        lines = ((label, text) for label, text in changes_of(names_of(row).details(row)))
        return format_html_join("", "<div>{}: {}</div>", lines) or gettext("none")

    @admin.display(description=_("Details"))
    def told(self, row: AuditEvent) -> dict[str, Any]:
        return names_of(row).details(row)

    @admin.display(description=_("Digest"))
    def digest(self, row: AuditEvent) -> str:
        """Return the audit event's position and digest in the hash chain."""
        link = getattr(row, "link", None)
        if link is None:
            return gettext("not sealed yet")
        return f"{link.position}:{bytes(link.digest).hex()}"


@admin.register(ChainVerification)
class ChainVerificationAdmin(ReadOnlyAdmin):
    """Verifications of the hash chain."""

    list_display = ("made_at", "position", "fault_count")
    fields = ("made_at", "position", "end", "faults")
    readonly_fields = ("end",)

    @admin.display(description=_("Faults"))
    def fault_count(self, row: ChainVerification) -> int:
        return len(row.faults)

    @admin.display(description=_("Digest of the chain head"))
    def end(self, row: ChainVerification) -> str:
        """Return the digest of the chain head."""
        return bytes(row.digest).hex()

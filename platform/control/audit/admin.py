"""The operator's view of the audit."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList

from control.admin.base import ReadOnlyAdmin
from control.audit.models import AuditEvent, ChainVerification
from control.audit.pseudonyms import NameResolver, by_people_named


class NamedChangeList(ChangeList):
    """A page of deeds with the names of the people in them."""

    def get_results(self, request: Any) -> None:
        """Find the rows, and the names for all of them at once."""
        super().get_results(request)
        names = NameResolver(self.result_list)
        for deed in self.result_list:
            deed.names = names


def names_of(deed: AuditEvent) -> NameResolver:
    """Return the names that came with a deed, or ask for them."""
    return getattr(deed, "names", None) or NameResolver([deed])


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    """What was done."""

    list_display = (
        "created_at", "by", "action", "target_id", "organization_id", "address", "request_id",
    )  # fmt: skip
    list_filter = ("action", "actor_kind")
    search_fields = ("actor_name", "target_id", "organization_id", "address", "request_id")
    search_help_text = "A person, what it was done to, an organization, an address or a request"
    fields = (
        "created_at", "by", "actor_kind", "actor_id", "action", "target_kind", "target_id",
        "organization_id", "told", "address", "request_id", "digest",
    )  # fmt: skip
    readonly_fields = ("by", "told", "digest")
    list_select_related = ("link",)

    def get_changelist(self, request: Any, **options: Any) -> type[ChangeList]:
        """Return the list, which asks once for all names."""
        return type("Named", (NamedChangeList, super().get_changelist(request, **options)), {})

    def get_search_results(self, request: Any, queryset: Any, search_term: str) -> Any:
        """Find deeds by the people in them, who stand there by reference, too."""
        found, may_repeat = super().get_search_results(request, queryset, search_term)
        if search_term.strip():
            found |= queryset.filter(by_people_named(search_term.strip()))
        return found, may_repeat

    @admin.display(description="By")
    def by(self, row: AuditEvent) -> str:
        """Return who did it."""
        return names_of(row).actor(row)

    @admin.display(description="Details")
    def told(self, row: AuditEvent) -> dict[str, Any]:
        """Return what changed."""
        return names_of(row).details(row)

    @admin.display(description="Digest")
    def digest(self, row: AuditEvent) -> str:
        """Return the deed's place in the chain."""
        link = getattr(row, "link", None)
        return f"{link.position}:{bytes(link.digest).hex()}" if link else "not sealed yet"


@admin.register(ChainVerification)
class ChainVerificationAdmin(ReadOnlyAdmin):
    """Provings of the chain."""

    list_display = ("made_at", "position", "fault_count")
    fields = ("made_at", "position", "end", "faults")
    readonly_fields = ("end",)

    @admin.display(description="Faults")
    def fault_count(self, row: ChainVerification) -> int:
        """Return how many there were."""
        return len(row.faults)

    @admin.display(description="Digest of its end")
    def end(self, row: ChainVerification) -> str:
        """Return the digest that the chain ended with."""
        return bytes(row.digest).hex()

"""The operators' view of usage tiers, rate limits and spending limits."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, Model, QuerySet
from django.forms import BaseInlineFormSet, ModelForm
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from control.admin.base import OperatorAdmin, ReadOnlyAdmin, VersionedInline, operator
from control.admin.fields import dollars
from control.limits import rate_limits
from control.limits.models import (
    RATE_LIMIT_FIELDS,
    OrganizationUsageTier,
    RateLimitOverride,
    SpendingLimit,
    UsageTier,
    UsageTierModelLimit,
)
from control.permissions import Actor


@admin.register(SpendingLimit)
class SpendingLimitAdmin(ReadOnlyAdmin):
    """Limits that organizations set for themselves."""

    list_display = ("budget_id", "organization", "period", "limit", "is_hard", "created_at")
    list_filter = ("period", "is_hard")
    list_select_related = ("organization",)
    search_fields = ("budget_id", "organization__name", "organization__id")
    fields = ("budget_id", "organization", "period", "limit", "is_hard", "created_at")
    readonly_fields = ("limit",)
    ordering = ("-created_at",)

    limit = dollars("limit_nanos", _("Limit"))


class UsageTierModelInline(VersionedInline):
    """A tier's limits on single models; an emptied row stays and limits nothing."""

    model = UsageTierModelLimit
    fields = ("model", *RATE_LIMIT_FIELDS)
    extra = 0
    hide_title = True
    verbose_name_plural = _("limits on single models")


@admin.register(UsageTier)
class UsageTierAdmin(OperatorAdmin):
    """Usage tiers: each organization is in the highest tier that its payments reach."""

    list_display = ("name", "paid_min", *RATE_LIMIT_FIELDS, "organizations")
    fields = ("name", "paid_min_nanos", "service_tiers", *RATE_LIMIT_FIELDS)
    inlines = (UsageTierModelInline,)
    dollars_help = {
        "paid_min_nanos": _(
            "Total paid so far, in dollars. Enter 0 for organizations that have paid nothing."
        )
    }
    column_labels = {"paid_min_nanos": _("Paid at least")}

    paid_min = dollars("paid_min_nanos", _("Paid at least"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the tiers with the number of organizations in each."""
        return super().get_queryset(request).annotate(standing_count=Count("standings"))

    @admin.display(description=_("Organizations"), ordering="standing_count")
    def organizations(self, tier: Any) -> int:
        return int(tier.standing_count)

    def add_row(self, actor: Actor, values: dict[str, Any]) -> UsageTier:
        return rate_limits.create_usage_tier(
            actor=actor,
            name=values["name"],
            paid_min_nanos=values.get("paid_min_nanos", 0),
            figures={name: values.get(name) for name in RATE_LIMIT_FIELDS},
            service_tiers=values.get("service_tiers"),
        )

    def change_row(self, actor: Actor, row: UsageTier, changes: dict[str, Any]) -> UsageTier:
        return rate_limits.change_usage_tier(actor=actor, tier=row, changes=changes)

    def save_formset(
        self, request: HttpRequest, form: ModelForm, formset: BaseInlineFormSet, change: bool
    ) -> None:
        """Set and lift the limits that the table changed, through the service."""
        actor = operator(request)
        for row in formset.save(commit=False):
            figures = {name: getattr(row, name) for name in RATE_LIMIT_FIELDS}
            rate_limits.set_usage_tier_model_limit(
                actor=actor, tier=row.tier, model=row.model, figures=figures
            )
        for row in formset.deleted_objects:
            rate_limits.set_usage_tier_model_limit(
                actor=actor, tier=row.tier, model=row.model, figures=None
            )


@admin.register(RateLimitOverride)
class RateLimitOverrideAdmin(OperatorAdmin):
    """Limits that replace those of an organization's tier: the whole row, not single figures."""

    list_display = ("organization", "model", *RATE_LIMIT_FIELDS, "created_at")
    list_select_related = ("organization", "model")
    search_fields = ("organization__name", "organization__id")
    autocomplete_fields = ("organization",)
    fields = ("organization", "model", *RATE_LIMIT_FIELDS)
    actions = ("lift",)

    def get_readonly_fields(
        self, request: HttpRequest, obj: Model | None = None
    ) -> tuple[str, ...]:
        """Keep the organization and the model of an existing row."""
        return () if obj is None else ("organization", "model")

    def add_row(self, actor: Actor, values: dict[str, Any]) -> Model:
        """Set an organization's own limits."""
        return self._set(actor, values["organization"], values.get("model"), values)

    def change_row(self, actor: Actor, row: RateLimitOverride, changes: dict[str, Any]) -> Model:
        """Change an organization's own limits."""
        return self._set(actor, row.organization, row.model, changes)

    def _set(self, actor: Actor, organization: Any, model: Any, values: dict[str, Any]) -> Model:
        figures = {name: values[name] for name in RATE_LIMIT_FIELDS if name in values}
        row = rate_limits.set_rate_limit_override(
            actor=actor, organization=organization, model=model, figures=figures
        )
        assert row is not None  # noqa: S101 - figures were given
        return row

    @admin.action(description=_("Remove: the tier's limits apply again"), permissions=["change"])
    def lift(self, request: HttpRequest, queryset: QuerySet[RateLimitOverride]) -> None:
        """Restore the limits of the organizations' tiers."""
        self.carry_out(
            request, queryset, _("%(row)s is removed."),
            lambda actor, row: rate_limits.set_rate_limit_override(
                actor=actor, organization=row.organization, model=row.model, figures=None
            ),
        )  # fmt: skip


@admin.register(OrganizationUsageTier)
class OrganizationUsageTierAdmin(ReadOnlyAdmin):
    """The usage tiers of organizations, by their payments less refunds."""

    list_display = ("organization", "tier", "paid", "since")
    list_select_related = ("organization", "tier")
    list_filter = ("tier",)
    search_fields = ("organization__name", "organization__id")
    fields = ("organization", "tier", "paid", "since")
    readonly_fields = ("paid",)

    paid = dollars("paid_nanos", _("Paid"))

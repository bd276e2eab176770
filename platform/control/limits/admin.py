"""The operator's limit tiers, with what they allow on single models, and what single organizations
have instead."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, Model, QuerySet
from django.forms import BaseInlineFormSet, ModelForm
from django.http import HttpRequest
from unfold.admin import TabularInline

from control.actor import Actor
from control.admin.base import OperatorAdmin, ReadOnlyAdmin, operator
from control.admin.fields import dollars
from control.gateways.models import GatewayHeartbeat
from control.limits import services
from control.limits.models import FIGURES, LimitTier, OrganizationLimits, Standing, TierModelLimits


class TierModelInline(TabularInline):
    """What a tier allows on single models; an emptied row stays and limits nothing."""

    model = TierModelLimits
    fields = ("model", *FIGURES)
    extra = 0
    hide_title = True
    verbose_name_plural = "limits on single models"


@admin.register(LimitTier)
class LimitTierAdmin(OperatorAdmin):
    """Limit tiers: each organization stands in the highest that what it has paid reaches."""

    list_display = ("name", "paid_min", *FIGURES, "organizations")
    fields = ("name", "paid_min_nanos", "service_tiers", *FIGURES)
    inlines = (TierModelInline,)
    dollars_help = {"paid_min_nanos": "In dollars, paid in all so far; 0 for who has paid nothing."}

    paid_min = dollars("paid_min_nanos", "Paid at least")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the tiers with how many stand in each."""
        return super().get_queryset(request).annotate(standing_count=Count("standings"))

    @admin.display(description="Organizations", ordering="standing_count")
    def organizations(self, tier: Any) -> int:
        """Return how many stand in it."""
        return int(tier.standing_count)

    def add_row(self, actor: Actor, values: dict[str, Any]) -> LimitTier:
        """Add a tier."""
        return services.create_tier(
            actor=actor,
            name=values["name"],
            paid_min_nanos=values.get("paid_min_nanos", 0),
            figures={name: values.get(name) for name in FIGURES},
            service_tiers=values.get("service_tiers"),
        )

    def change_row(self, actor: Actor, row: LimitTier, changes: dict[str, Any]) -> LimitTier:
        """Change a tier."""
        return services.change_tier(actor=actor, tier=row, changes=changes)

    def save_formset(
        self, request: HttpRequest, form: ModelForm, formset: BaseInlineFormSet, change: bool
    ) -> None:
        """Set and lift the limits that the table changed, through their service."""
        actor = operator(request)
        for row in formset.save(commit=False):
            figures = {name: getattr(row, name) for name in FIGURES}
            services.set_tier_model_limits(
                actor=actor, tier=row.tier, model=row.model, figures=figures
            )
        for row in formset.deleted_objects:
            services.set_tier_model_limits(
                actor=actor, tier=row.tier, model=row.model, figures=None
            )


@admin.register(OrganizationLimits)
class OrganizationLimitsAdmin(OperatorAdmin):
    """What organizations may do instead of what their tier says: the whole row, not one figure."""

    list_display = ("organization", "model", *FIGURES, "created_at")
    list_select_related = ("organization", "model")
    search_fields = ("organization__name", "organization__id")
    autocomplete_fields = ("organization",)
    fields = ("organization", "model", *FIGURES)
    actions = ("lift",)

    def get_readonly_fields(
        self, request: HttpRequest, obj: Model | None = None
    ) -> tuple[str, ...]:
        """Whose and of which model a row is stays."""
        return () if obj is None else ("organization", "model")

    def add_row(self, actor: Actor, values: dict[str, Any]) -> Model:
        """Give an organization limits of its own."""
        return self._set(actor, values["organization"], values.get("model"), values)

    def change_row(self, actor: Actor, row: OrganizationLimits, changes: dict[str, Any]) -> Model:
        """Change them."""
        return self._set(actor, row.organization, row.model, changes)

    def _set(self, actor: Actor, organization: Any, model: Any, values: dict[str, Any]) -> Model:
        figures = {name: values[name] for name in FIGURES if name in values}
        row = services.set_organization_limits(
            actor=actor, organization=organization, model=model, figures=figures
        )
        assert row is not None  # noqa: S101 - figures were given
        return row

    @admin.action(description="Lift: the tier's limits hold again", permissions=["change"])
    def lift(self, request: HttpRequest, queryset: QuerySet[OrganizationLimits]) -> None:
        """Give the organizations their tier's limits back."""
        self.carry_out(
            request, queryset, "is lifted",
            lambda actor, row: services.set_organization_limits(
                actor=actor, organization=row.organization, model=row.model, figures=None
            ),
        )  # fmt: skip


@admin.register(Standing)
class StandingAdmin(ReadOnlyAdmin):
    """Where organizations stand: by what they paid, less what they got back."""

    list_display = ("organization", "tier", "paid", "since")
    list_select_related = ("organization", "tier")
    list_filter = ("tier",)
    search_fields = ("organization__name", "organization__id")
    fields = ("organization", "tier", "paid", "since")
    readonly_fields = ("paid",)

    paid = dollars("paid_nanos", "Paid")


@admin.register(GatewayHeartbeat)
class LiveGatewayAdmin(ReadOnlyAdmin):
    """Gateways that live: without Redis each holds callers to its part of their limits."""

    list_display = ("gateway_id", "seen_at")

"""The operators' catalog: models, variants with quality reports, deployments with live replicas."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from control.admin.base import OperatorAdmin, ReadOnlyAdmin, ReadOnlyInline
from control.admin.fields import indented
from control.catalog import selectors, services
from control.catalog.fleet_status import fleet_status
from control.catalog.models import Deployment, Model, QualityReport, Variant
from control.permissions import Actor


class VariantAdminMixin(OperatorAdmin):
    """Forms that choose a variant, which is shown with its model's name."""

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Return the field, whose choices need one query for any number of variants."""
        if db_field.related_model is Variant:
            options["queryset"] = Variant.objects.select_related("model")
        return super().formfield_for_foreignkey(db_field, request, **options)


class VariantInline(ReadOnlyInline):
    """The variants of a model."""

    model = Variant
    fields = ("precision", "weights", "context_tokens", "size", "published_at")
    readonly_fields = ("size",)
    hide_title = False
    show_change_link = True

    @admin.display(description=_("Size"))
    def size(self, row: Variant) -> str:
        """Return the size of the weights."""
        return _size(row.size_bytes)


@admin.register(Model)
class ModelAdmin(VariantAdminMixin):
    """Models."""

    list_display = ("public_id", "name", "task", "default_variant", "created_at")
    search_fields = ("public_id", "name")
    fields = ("public_id", "name", "task", "description", "organization_ids", "default_variant")
    inlines = (VariantInline,)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep the public id and the task of an existing model; a new one has no variant to
        choose."""
        return ("public_id", "task") if obj else ("default_variant",)

    def add_row(self, actor: Actor, values: dict[str, Any]) -> Model:
        """Add a model."""
        return services.create_model(actor=actor, **_open_to_all_if_empty(values))

    def change_row(self, actor: Actor, row: Model, changes: dict[str, Any]) -> Model:
        """Change a model, and its default variant."""
        changes = _open_to_all_if_empty(changes)
        return services.update_model(actor=actor, model=row, changes=changes)


@admin.register(Variant)
class VariantAdmin(VariantAdminMixin):
    """Variants."""

    list_display = ("__str__", "published_at", "accuracy", "size", "context_tokens")
    list_select_related = ("model",)
    list_filter = ("model", "precision")
    fields = (
        "model", "precision", "parent", "weights", "engine_arguments", "capabilities",
        "context_tokens", "output_tokens_max", "vocabulary_size", "dimensions", "parameter_count",
        "size_bytes", "published_at", "quality",
    )  # fmt: skip
    readonly_fields = ("published_at", "quality")
    actions = ("publish", "withdraw")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep the model, precision and parent of an existing variant."""
        fixed = ("model", "precision", "parent") if obj else ()
        return (*self.readonly_fields, *fixed)

    def add_row(self, actor: Actor, values: dict[str, Any]) -> Variant:
        """Add a variant."""
        return services.create_variant(actor=actor, **values)

    def change_row(self, actor: Actor, row: Variant, changes: dict[str, Any]) -> Variant:
        """Change a variant."""
        return services.update_variant(actor=actor, variant=row, changes=changes)

    @admin.action(description=_("Publish for customers"), permissions=["change"])
    def publish(self, request: HttpRequest, queryset: QuerySet[Variant]) -> None:
        """Open the variants to customers."""
        self.carry_out(
            request, queryset, _("%(row)s is published."),
            lambda actor, row: services.publish_variant(actor=actor, variant=row),
        )  # fmt: skip

    @admin.action(description=_("Withdraw from customers"), permissions=["change"])
    def withdraw(self, request: HttpRequest, queryset: QuerySet[Variant]) -> None:
        """Remove the variants from the customers' list."""
        self.carry_out(
            request, queryset, _("%(row)s is withdrawn."),
            lambda actor, row: services.withdraw_variant(actor=actor, variant=row),
        )  # fmt: skip

    @admin.display(description=_("Size"), ordering="size_bytes")
    def size(self, row: Variant) -> str:
        """Return the size of the weights."""
        return _size(row.size_bytes)

    @admin.display(description=_("Accuracy"))
    def accuracy(self, row: Variant) -> str:
        """Return the accuracy in the newest report."""
        report = selectors.latest_report(row)
        return _percent(report.accuracy if report else None)

    @admin.display(description=_("Quality report"))
    def quality(self, row: Variant) -> str:
        """Return the newest report, by skill."""
        report = selectors.latest_report(row)
        return gettext("No report yet.") if report is None else skills_table(report)


@admin.register(QualityReport)
class QualityReportAdmin(ReadOnlyAdmin):
    """Quality reports."""

    list_display = (
        "variant", "share_right", "question_count", "perplexity", "size", "tokens_per_second",
        "created_at",
    )  # fmt: skip
    list_select_related = ("variant__model",)
    fields = (
        "variant", "created_at", "share_right", "question_count", "by_skill", "perplexity", "size",
        "tokens_per_second", "as_written",
    )  # fmt: skip
    readonly_fields = ("share_right", "by_skill", "size", "as_written")

    @admin.display(description=_("Accuracy"), ordering="accuracy")
    def share_right(self, row: QualityReport) -> str:
        """Return the share of correct answers with its 95 % interval."""
        if row.accuracy is None or row.accuracy_low is None or row.accuracy_high is None:
            return _percent(row.accuracy)
        return gettext("%(share)s (%(low)s to %(high)s)") % {
            "share": f"{row.accuracy:.1%}",
            "low": f"{row.accuracy_low:.1%}",
            "high": f"{row.accuracy_high:.1%}",
        }

    @admin.display(description=_("Size"), ordering="size_bytes")
    def size(self, row: QualityReport) -> str:
        """Return the size of the weights."""
        return _size(row.size_bytes)

    @admin.display(description=_("Full report"))
    def as_written(self, row: QualityReport) -> str:
        """Return the whole document."""
        return indented(row.document)

    @admin.display(description=_("By skill"))
    def by_skill(self, row: QualityReport) -> str:
        """Return the scores by skill."""
        return skills_table(row)


@admin.register(Deployment)
class DeploymentAdmin(VariantAdminMixin):
    """Deployments; raising `replicas_min` from 0 starts one without a restart of anything."""

    list_display = ("__str__", "engine", "replicas_min", "replicas_max", "slots", "live_replicas")
    list_select_related = ("variant__model",)
    list_filter = ("engine",)
    fieldsets = (
        (None, {"fields": ("variant", "engine", "dedicated_to", "live_replicas", "replicas")}),
        (
            _("Size"),
            {
                "fields": (
                    ("replicas_min", "replicas_max", "slots"),
                    *("reserved_share", "sleep_after_seconds"),
                )
            },
        ),
        (_("Engine"), {"fields": ("engine_arguments", "external_urls")}),
        (_("Cost"), {"fields": ("hourly_cost_nanos",)}),
        (
            _("Timeouts in seconds"),
            {
                "fields": (
                    *("connect_seconds", "first_byte_seconds", "gap_seconds", "total_seconds"),
                    *("queue_seconds", "wake_seconds"),
                )
            },
        ),
    )
    readonly_fields = ("live_replicas", "replicas")
    dollars_help = {
        "hourly_cost_nanos": _(
            "What one replica costs per hour, in dollars. Leave empty if unknown."
        )
    }
    column_labels = {"hourly_cost_nanos": _("Hourly cost")}

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep the variant of an existing deployment."""
        return (*self.readonly_fields, *(("variant",) if obj else ()))

    def add_row(self, actor: Actor, values: dict[str, Any]) -> Deployment:
        """Add a deployment."""
        return services.create_deployment(actor=actor, **values)

    def change_row(self, actor: Actor, row: Deployment, changes: dict[str, Any]) -> Deployment:
        """Change a deployment."""
        return services.update_deployment(actor=actor, deployment=row, changes=changes)

    @admin.display(description=_("Live replicas"))
    def live_replicas(self, row: Deployment) -> str:
        """Return the number of replicas in each state, as the fleet reports them."""
        return fleet_status().summary(row.id)

    @admin.display(description=_("Replicas"))
    def replicas(self, row: Deployment) -> str:
        """Return each replica with its state."""
        lines = (
            (each.replica_id, each.state, each.progress or each.reason)
            for each in fleet_status().of(row.id)
        )
        return format_html_join("", "<div>{} · {} {}</div>", lines) or gettext("none")


def skills_table(report: QualityReport) -> str:
    """Return a report's scores as an HTML table, one row per skill."""
    rows = format_html_join(
        "",
        "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
        (
            (
                each["skill"],
                gettext("%(right)s of %(count)s")
                % {"right": each["right"], "count": each["asked"]},
                f"{each['share']:.1%}",
            )
            for each in report.skills
        ),
    )
    return format_html('<table class="figures">{}</table>', rows)


def _percent(share: float | None) -> str:
    return gettext("no report") if share is None else f"{share:.1%}"


def _size(size_bytes: int | None) -> str:
    return gettext("unknown") if size_bytes is None else f"{size_bytes / 1e6:,.1f} MB"


def _open_to_all_if_empty(values: dict[str, Any]) -> dict[str, Any]:
    if "organization_ids" in values:
        values["organization_ids"] = values["organization_ids"] or None
    return values

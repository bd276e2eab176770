"""The operators' catalog: models, variants with quality reports, deployments with live replicas."""

from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action
from unfold.widgets import UnfoldAdminTextInputWidget, UnfoldBooleanSwitchWidget

from control.admin.base import (
    OperatorAdmin,
    ReadOnlyAdmin,
    ReadOnlyInline,
    VersionedModelForm,
    row_url,
)
from control.admin.confirm import Confirmation, confirm
from control.admin.fields import indented
from control.catalog import retirement, selectors, services
from control.catalog.fleet_admin import FleetAdmin  # noqa: F401 - registers its pages
from control.catalog.fleet_status import fleet_status
from control.catalog.models import Deployment, Model, QualityReport, ReplicaFailure, Variant
from control.catalog.plans import deployment_plan, plan_lines
from control.catalog.publication import Requirement, RequirementCode, requirements
from control.forms import REASON_MAX
from control.permissions import Actor

FAILURES_SHOWN = 5
FAILURE = '<div>{} · <a class="text-primary-600 dark:text-primary-500" href="{}">{}</a> · {}</div>'
LINK = '<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>'
NAMES: dict[RequirementCode, "StrOrPromise"] = {
    "weights": _("Weights"),
    "quality_report": _("Quality report"),
    "price": _("Price in force"),
    "deployment": _("Running deployment"),
}

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


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
        return _size(row.size_bytes)


class CatalogModelForm(VersionedModelForm):
    """A model. An unset list of organizations and an empty one differ: everybody, and nobody."""

    is_open_to_all = forms.BooleanField(
        label=_("Open to all organizations"), required=False, widget=UnfoldBooleanSwitchWidget
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.initial["is_open_to_all"] = self.instance.is_open_to_all

    def clean(self) -> dict[str, Any] | None:
        """Refuse a list of organizations that would have no effect."""
        cleaned = super().clean()
        if self.cleaned_data.get("is_open_to_all") and self.cleaned_data.get("organization_ids"):
            words = gettext("Turn off “Open to all organizations”, or remove these.")
            self.add_error("organization_ids", words)
        return cleaned


@admin.register(Model)
class ModelAdmin(VariantAdminMixin):
    """Models."""

    form = CatalogModelForm
    list_display = ("public_id", "name", "task", "default_variant", "created_at")
    search_fields = ("public_id", "name")
    fields = (
        "public_id", "name", "task", "description", "is_open_to_all", "organization_ids",
        "default_variant",
    )  # fmt: skip
    inlines = (VariantInline,)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep the public id and the task of an existing model; a new one has no variant to
        choose."""
        return ("public_id", "task") if obj else ("default_variant",)

    def add_row(self, actor: Actor, values: dict[str, Any]) -> Model:
        return services.create_model(actor=actor, **_with_openness(values))

    def change_row(self, actor: Actor, row: Model, changes: dict[str, Any]) -> Model:
        """Change a model, and its default variant."""
        return services.update_model(actor=actor, model=row, changes=_with_openness(changes))


@admin.register(Variant)
class VariantAdmin(VariantAdminMixin):
    """Variants."""

    list_display = ("__str__", "published_at", "accuracy", "size", "context_tokens")
    list_select_related = ("model",)
    list_filter = ("model", "precision")
    fields = (
        "model", "precision", "parent", "weights", "weights_digest",
        ("accelerator", "tensor_parallel_size", "pipeline_parallel_size"), "engine_arguments",
        "capabilities",
        "context_tokens", "output_tokens_max", "vocabulary_size", "dimensions", "parameter_count",
        "size_bytes", "published_at", "quality",
    )  # fmt: skip
    readonly_fields = ("published_at", "quality")
    actions = ("withdraw",)
    actions_detail = ("publish", "archive", "remove")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep the model, precision, parent and weights of an existing variant."""
        fixed = ("model", "precision", "parent", "weights") if obj else ()
        known = ("weights_digest",) if obj and obj.weights_digest else ()
        return (*self.readonly_fields, *fixed, *known)

    def add_row(self, actor: Actor, values: dict[str, Any]) -> Variant:
        return services.create_variant(actor=actor, **values)

    def change_row(self, actor: Actor, row: Variant, changes: dict[str, Any]) -> Variant:
        return services.update_variant(actor=actor, variant=row, changes=changes)

    @action(description=_("Publish for customers"), permissions=["publish"])
    def publish(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what the variant needs; on POST, open it to customers."""
        return publish_page(self, request, selectors.variant(unquote(object_id)))

    def has_publish_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Allow only unpublished variants to be published."""
        variant = selectors.variant(unquote(object_id))
        return super().has_change_permission(request) and variant.published_at is None

    @action(description=_("Archive"), permissions=["retire"])
    def archive(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for a confirmation; on POST, archive the variant."""
        variant = selectors.variant(unquote(object_id))
        confirmation = Confirmation(
            gettext("Archive %(variant)s") % {"variant": variant},
            gettext(
                "It can be neither deployed nor published again, and its precision is free for"
                " another variant. Withdraw it and end its deployments first."
            ),
            forms.Form,
            partial(retirement.archive_variant, variant=variant),
        )
        return confirm(self, request, variant, confirmation)

    @action(description=_("Delete"), permissions=["retire"])
    def remove(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for a confirmation; on POST, delete the variant."""
        variant = selectors.variant(unquote(object_id))
        confirmation = Confirmation(
            gettext("Delete %(variant)s") % {"variant": variant},
            gettext("Its quality reports are deleted too. What usage or prices name stays."),
            forms.Form,
            partial(retirement.delete_variant, variant=variant),
            after=reverse("admin:catalog_variant_changelist"),
        )
        return confirm(self, request, variant, confirmation)

    def has_retire_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Allow only unpublished variants to be archived or deleted."""
        return self.has_publish_permission(request, object_id)

    @admin.action(description=_("Withdraw from customers"), permissions=["change"])
    def withdraw(self, request: HttpRequest, queryset: QuerySet[Variant]) -> None:
        """Remove the variants from the customers' list."""
        self.carry_out(
            request, queryset, _("%(row)s is withdrawn."),
            lambda actor, row: services.withdraw_variant(actor=actor, variant=row),
        )  # fmt: skip

    @admin.display(description=_("Size"), ordering="size_bytes")
    def size(self, row: Variant) -> str:
        return _size(row.size_bytes)

    @admin.display(description=_("Accuracy"))
    def accuracy(self, row: Variant) -> str:
        """Return the accuracy in the newest report."""
        report = row.latest_report
        return _percent(report.accuracy if report else None)

    @admin.display(description=_("Quality report"))
    def quality(self, row: Variant) -> str:
        """Return the newest report, by skill."""
        report = row.latest_report
        return gettext("No report yet.") if report is None else skills_table(report)


class PublishVariantForm(forms.Form):
    """Why a variant is published ahead of its price or deployment."""

    override_reason = forms.CharField(
        label=_("Reason to publish now"),
        required=False,
        max_length=REASON_MAX,
        widget=UnfoldAdminTextInputWidget,
        help_text=_("Needed only while the price or the deployment is missing. It is audited."),
    )


def publish_page(admin: VariantAdmin, request: HttpRequest, variant: Variant) -> HttpResponse:
    """Show what the variant needs before customers may use it; on POST, publish it."""
    rows = [requirement_row(variant, each) for each in requirements(variant)]
    confirmation = Confirmation(
        gettext("Publish %(variant)s") % {"variant": variant},
        gettext(
            "Customers can then use the variant. It needs what is listed here. The price and the"
            " deployment may follow later if you give a reason."
        ),
        PublishVariantForm,
        partial(services.publish_variant, variant=variant),
        {"headers": (_("Requirement"), _("Status"), ""), "rows": rows},
    )
    return confirm(admin, request, variant, confirmation)


def requirement_row(variant: Variant, requirement: Requirement) -> tuple[str, str, str]:
    """Return a requirement as a row of a table: its name, its status, and where to see to it."""
    label, url = _place(variant, requirement.code)
    link = format_html(
        '<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', url, label
    )
    return (str(NAMES[requirement.code]), requirement.problem or gettext("ready"), link)


def _place(variant: Variant, code: RequirementCode) -> tuple[str, str]:
    """Return the words and the address of the page where a requirement is seen to."""
    if code == "deployment":
        deployment = selectors.live_deployments(variant).first()
        if deployment is not None:
            url = row_url("admin:catalog_deployment_change", deployment.id)
            return gettext("Open the deployment"), url
        url = reverse("admin:catalog_deployment_add")
        return gettext("Add a deployment"), f"{url}?{urlencode({'variant': variant.id})}"
    if code == "price":
        # Named, not imported, since it belongs to a layer above.
        return gettext("Open price books"), reverse("admin:pricing_pricebook_changelist")
    if code == "quality_report":
        return gettext("Open quality reports"), reverse("admin:catalog_qualityreport_changelist")
    return gettext("Open the variant"), row_url("admin:catalog_variant_change", variant.id)


@admin.register(QualityReport)
class QualityReportAdmin(ReadOnlyAdmin):
    """Quality reports."""

    list_display = (
        "variant", "share_right", "question_count", "perplexity", "size", "tokens_per_second",
        "created_at",
    )  # fmt: skip
    list_select_related = ("variant__model",)
    fields = (
        "variant", "weights_digest", "created_at", "share_right", "question_count", "by_skill",
        "perplexity", "size", "tokens_per_second", "as_written",
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
        return _size(row.size_bytes)

    @admin.display(description=_("Full report"))
    def as_written(self, row: QualityReport) -> str:
        """Return the whole document."""
        return indented(row.document)

    @admin.display(description=_("By skill"))
    def by_skill(self, row: QualityReport) -> str:
        return skills_table(row)


@admin.register(Deployment)
class DeploymentAdmin(VariantAdminMixin):
    """Deployments; raising `replicas_min` from 0 starts one without a restart of anything."""

    list_display = (
        "__str__", "state", "fleet", "engine", "replicas_min", "replicas_max", "slots",
        "live_replicas",
    )  # fmt: skip
    list_select_related = ("variant__model", "fleet")
    list_filter = ("fleet", "engine")
    fieldsets = (
        (
            None,
            {
                "fields": (
                    *("state", "variant", "fleet", "engine", "dedicated_to", "live_replicas"),
                    *("replicas", "plan", "recent_failures"),
                )
            },
        ),
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
    readonly_fields = ("state", "live_replicas", "replicas", "plan", "recent_failures")
    actions_detail = ("end", "remove")
    dollars_help = {
        "hourly_cost_nanos": _(
            "What one replica costs per hour, in dollars. Leave empty if unknown."
        )
    }
    column_labels = {"hourly_cost_nanos": _("Hourly cost")}

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep the variant and the fleet of an existing deployment."""
        return (*self.readonly_fields, *(("variant", "fleet") if obj else ()))

    def add_row(self, actor: Actor, values: dict[str, Any]) -> Deployment:
        return services.create_deployment(actor=actor, **values)

    def change_row(self, actor: Actor, row: Deployment, changes: dict[str, Any]) -> Deployment:
        return services.update_deployment(actor=actor, deployment=row, changes=changes)

    @action(description=_("End"), permissions=["change"])
    def end(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for a confirmation; on POST, end the deployment."""
        deployment = selectors.deployment(unquote(object_id))
        confirmation = Confirmation(
            gettext("End %(deployment)s") % {"deployment": deployment},
            gettext("It never starts again. Stop it first: set its replicas to 0."),
            forms.Form,
            partial(retirement.end_deployment, deployment=deployment),
        )
        return confirm(self, request, deployment, confirmation)

    @action(description=_("Delete"), permissions=["change"])
    def remove(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for a confirmation; on POST, delete the deployment."""
        deployment = selectors.deployment(unquote(object_id))
        confirmation = Confirmation(
            gettext("Delete %(deployment)s") % {"deployment": deployment},
            gettext("End it first. A deployment that served customers stays for the record."),
            forms.Form,
            partial(retirement.delete_deployment, deployment=deployment),
            after=reverse("admin:catalog_deployment_changelist"),
        )
        return confirm(self, request, deployment, confirmation)

    @admin.display(description=_("State"))
    def state(self, row: Deployment) -> str:
        """Return whether it serves requests."""
        return str(row.state(fleet_status()).label)

    @admin.display(description=_("Live replicas"))
    def live_replicas(self, row: Deployment) -> str:
        """Return the number of replicas in each state, as the fleet reports them."""
        return fleet_status().summary(str(row.fleet_id), row.id)

    @admin.display(description=_("Replicas"))
    def replicas(self, row: Deployment) -> str:
        lines = (
            (each.replica_id, each.state, each.progress or each.reason)
            for each in fleet_status().of(row.id)
        )
        return format_html_join("", "<div>{} · {} {}</div>", lines) or gettext("none")

    @admin.display(description=_("Plan"))
    def plan(self, row: Deployment) -> str:
        """Return what a replica needs, whether there is room, and how replicas are replaced."""
        plan = deployment_plan(row)
        lines = [] if plan is None else plan_lines(plan)
        return format_html_join("", "<div>{}</div>", ((line,) for line in lines)) or gettext(
            "unknown"
        )

    @admin.display(description=_("Recent failures"))
    def recent_failures(self, row: Deployment) -> str:
        """Return the last failures of its replicas, each with its reason."""
        lines = (
            (
                f"{each.noticed_at:%Y-%m-%d %H:%M} UTC",
                row_url("admin:catalog_replicafailure_change", each.replica_id),
                each.replica_id,
                each.reason,
            )
            for each in selectors.failures(row)[:FAILURES_SHOWN]
        )
        return format_html_join("", FAILURE, lines) or gettext("none")


@admin.register(ReplicaFailure)
class ReplicaFailureAdmin(ReadOnlyAdmin):
    """Replicas that failed, the newest first."""

    list_display = ("replica_id", "deployment", "reason", "noticed_at")
    list_select_related = ("deployment__variant__model",)
    search_fields = ("=replica_id", "=deployment__id", "reason")
    fields = ("replica_id", "deployment", "reason", "started_at", "noticed_at")


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


def _with_openness(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a form, with None for the organizations if it is open to all."""
    if "is_open_to_all" not in values:
        return values
    is_open = values.pop("is_open_to_all")
    return values | {"organization_ids": None if is_open else values.get("organization_ids", [])}

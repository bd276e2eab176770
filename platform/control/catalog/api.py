"""The operators' catalog in the management API: models, variants and deployments."""

from typing import Any, get_args

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control.api.idempotency import idempotent
from control.api.operator_views import (
    OperatorApiView,
    OperatorSerializer,
    RowIdField,
    RowSerializer,
)
from control.api.versions import versioned
from control.catalog import retirement, selectors, services
from control.catalog.fleet_status import fleet_status
from control.catalog.models import Deployment, DeploymentState, Fleet, Model, QualityReport, Variant
from control.catalog.plans import deployment_plan
from control.catalog.publication import RequirementCode, requirements
from control.catalog.services import DEPLOYMENT_FIELDS, MODEL_FIELDS, VARIANT_FIELDS
from control.forms import REASON_MAX
from control.organizations.models import Organization
from control.permissions import Permission
from serving.contract.deployment_plan import Rollout


class AdminModelSerializer(RowSerializer):
    """A model. `organization_ids` of null opens it to every organization."""

    default_variant_id = serializers.CharField(read_only=True, allow_null=True)

    class Meta:
        model = Model
        fields = (
            "id",
            "public_id",
            "task",
            *sorted(MODEL_FIELDS),
            "default_variant_id",
            "created_at",
        )
        read_only_fields = ("id", "created_at")


class AdminModelChangesSerializer(RowSerializer):
    """Changes of a model, whose public id and task stay. Its default variant is a published one."""

    default_variant_id = RowIdField(Variant, source="default_variant", required=False)

    class Meta:
        model = Model
        fields = (*sorted(MODEL_FIELDS), "default_variant_id")


class AdminVariantSerializer(RowSerializer):
    """A variant: the weights of a model in one precision. A quantized one has a parent."""

    model_id = RowIdField(Model, source="model")
    parent_id = RowIdField(Variant, source="parent", required=False, allow_null=True)

    class Meta:
        model = Variant
        fields = (
            "id", "model_id", "precision", "parent_id", *sorted(VARIANT_FIELDS), "created_at",
            "published_at", "archived_at",
        )  # fmt: skip
        read_only_fields = ("id", "created_at", "published_at", "archived_at")


class AdminVariantChangesSerializer(RowSerializer):
    """Changes of a variant, whose model, precision and parent stay. Its `weights` stay too: another
    value is refused with `immutable`. A `weights_digest` can be set while it is empty."""

    class Meta:
        model = Variant
        fields = tuple(sorted(VARIANT_FIELDS))


class AdminDeploymentChangesSerializer(RowSerializer):
    """Changes of a deployment, whose variant and fleet stay."""

    dedicated_to_id = RowIdField(
        Organization, source="dedicated_to", required=False, allow_null=True
    )

    class Meta:
        model = Deployment
        fields: tuple[str, ...] = (*sorted(DEPLOYMENT_FIELDS - {"dedicated_to"}), "dedicated_to_id")


class MemoryEstimateSerializer(OperatorSerializer):
    """The memory of one replica over all its devices, in bytes: its weights, these and the KV cache
    of one sequence of `context_tokens`, and of `slots` such sequences at once."""

    weights_bytes = serializers.IntegerField()
    token_bytes = serializers.IntegerField()
    context_tokens = serializers.IntegerField()
    slots = serializers.IntegerField()
    least_bytes = serializers.IntegerField()
    full_bytes = serializers.IntegerField()


class DeploymentPlanSerializer(OperatorSerializer):
    """The plan of a fleet before anything starts. `needs` is what one replica takes, and `room`
    what is missing for one more, empty if there is room. A change replaces replicas without
    interruption (`rolling`), stops one before its successor starts (`recreate`), or is `refused`,
    for the `reason`. `estimate` is null if the weights are no folder on the fleet's host."""

    needs = serializers.CharField()
    room = serializers.CharField()
    rollout = serializers.ChoiceField(choices=get_args(Rollout))
    reason = serializers.CharField()
    estimate = MemoryEstimateSerializer(allow_null=True)
    load_seconds = serializers.FloatField(allow_null=True)


class AdminDeploymentSerializer(AdminDeploymentChangesSerializer):
    """A deployment: how many replicas of a variant run in a fleet, and how. Timeouts are in
    seconds. `region` is the fleet's."""

    variant_id = RowIdField(Variant, source="variant")
    fleet_id = RowIdField(Fleet, source="fleet", required=False)
    region = serializers.CharField(source="fleet.region", read_only=True)
    state = serializers.SerializerMethodField()
    plan = serializers.SerializerMethodField()

    class Meta(AdminDeploymentChangesSerializer.Meta):
        fields = (
            "id", "state", "variant_id", "fleet_id", "region", "plan",
            *AdminDeploymentChangesSerializer.Meta.fields, "created_at", "ended_at",
        )  # fmt: skip
        read_only_fields = ("id", "created_at", "ended_at")

    @extend_schema_field(serializers.ChoiceField(choices=DeploymentState.choices))
    def get_state(self, deployment: Deployment) -> str:
        """Return whether it serves requests: `ready`, `loading`, `asleep`, `failed`, `stopped`,
        `ended`, or `unknown` while the fleet does not respond."""
        return deployment.state(fleet_status())

    @extend_schema_field(DeploymentPlanSerializer(allow_null=True))
    def get_plan(self, deployment: Deployment) -> dict[str, Any] | None:
        """Return what its fleet says before anything starts; null while the fleet does not respond,
        and for servers that others run."""
        plan = deployment_plan(deployment)
        return None if plan is None else DeploymentPlanSerializer(plan).data


class ModelFilterSerializer(OperatorSerializer):
    """Filters of variants."""

    model_id = serializers.CharField(required=False)


class VariantFilterSerializer(OperatorSerializer):
    """Filters of deployments."""

    variant_id = serializers.CharField(required=False)
    fleet_id = serializers.CharField(required=False)


class AdminModelList(OperatorApiView):
    """All models."""

    serializer_class = AdminModelSerializer
    write_permission = Permission.CATALOG_WRITE

    @extend_schema(operation_id="admin_models_list")
    def get(self, request: Request) -> Response:
        """List models, newest first."""
        return self.filtered_page(selectors.models())

    @idempotent
    @extend_schema(operation_id="admin_models_create", responses={201: AdminModelSerializer})
    def post(self, request: Request) -> Response:
        """Add a model. Customers can use it once it has a published variant."""
        values = AdminModelSerializer.read(request.data)
        return self.shown(services.create_model(actor=self.actor, **values), status=201)


@versioned(AdminModelChangesSerializer)
class AdminModelDetail(OperatorApiView):
    """One model."""

    serializer_class = AdminModelSerializer
    write_permission = Permission.CATALOG_WRITE

    @extend_schema(operation_id="admin_models_retrieve")
    def get(self, request: Request, model_id: str) -> Response:
        """Retrieve a model."""
        return self.shown(selectors.model(model_id))

    @extend_schema(operation_id="admin_models_update", request=AdminModelChangesSerializer)
    def patch(self, request: Request, model_id: str) -> Response:
        """Change a model, all or nothing."""
        changes = AdminModelChangesSerializer.read(request.data, partial=True)
        model = selectors.model(model_id)
        return self.shown(services.update_model(actor=self.actor, model=model, changes=changes))


class AdminVariantList(OperatorApiView):
    """All variants."""

    serializer_class = AdminVariantSerializer
    write_permission = Permission.CATALOG_WRITE

    @extend_schema(operation_id="admin_variants_list", parameters=[ModelFilterSerializer])
    def get(self, request: Request) -> Response:
        """List variants, newest first."""
        return self.filtered_page(selectors.all_variants(), ModelFilterSerializer)

    @idempotent
    @extend_schema(operation_id="admin_variants_create", responses={201: AdminVariantSerializer})
    def post(self, request: Request) -> Response:
        """Add a variant, which customers cannot use before it is published."""
        values = AdminVariantSerializer.read(request.data)
        return self.shown(services.create_variant(actor=self.actor, **values), status=201)


@versioned(AdminVariantChangesSerializer)
class AdminVariantDetail(OperatorApiView):
    """One variant."""

    serializer_class = AdminVariantSerializer
    write_permission = Permission.CATALOG_WRITE

    @extend_schema(operation_id="admin_variants_retrieve")
    def get(self, request: Request, variant_id: str) -> Response:
        """Retrieve a variant."""
        return self.shown(selectors.variant(variant_id))

    @extend_schema(operation_id="admin_variants_update", request=AdminVariantChangesSerializer)
    def patch(self, request: Request, variant_id: str) -> Response:
        """Change a variant, all or nothing. Gateways apply it within a second."""
        changes = AdminVariantChangesSerializer.read(request.data, partial=True)
        variant = selectors.variant(variant_id)
        return self.shown(
            services.update_variant(actor=self.actor, variant=variant, changes=changes)
        )

    @extend_schema(operation_id="admin_variants_delete", responses={204: None})
    def delete(self, request: Request, variant_id: str) -> Response:
        """Delete a variant with its quality reports. If it is published, or if deployments, prices,
        usage or other variants refer to it, the answer is 409."""
        variant = selectors.variant(variant_id)
        retirement.delete_variant(actor=self.actor, variant=variant)
        return Response(status=204)


class PublishVariantSerializer(OperatorSerializer):
    """Why a variant is published although it has no price or no running deployment yet; the audit
    log keeps the reason."""

    override_reason = serializers.CharField(required=False, max_length=REASON_MAX)


class RequirementSerializer(OperatorSerializer):
    """One thing that a variant needs before customers may use it; `problem` says what is missing,
    and is empty where nothing is."""

    code = serializers.ChoiceField(choices=get_args(RequirementCode))
    is_met = serializers.BooleanField()
    problem = serializers.CharField()


class RequirementListSerializer(OperatorSerializer):
    """All that a variant needs before customers may use it."""

    requirements = RequirementSerializer(many=True)


class PublishVariant(OperatorApiView):
    """The publication of a variant."""

    serializer_class = AdminVariantSerializer
    write_permission = Permission.CATALOG_WRITE

    @extend_schema(
        operation_id="admin_variants_requirements", responses={200: RequirementListSerializer}
    )
    def get(self, request: Request, variant_id: str) -> Response:
        """List what a variant needs before it can be published, and what of it is missing."""
        found = requirements(selectors.variant(variant_id))
        return Response({"requirements": RequirementSerializer(found, many=True).data})

    @idempotent
    @extend_schema(operation_id="admin_variants_publish", request=PublishVariantSerializer)
    def post(self, request: Request, variant_id: str) -> Response:
        """Open a variant to customers; the first of a model becomes its default. If it lacks
        weights, a price, a running deployment or, being quantized, a quality report, the answer is
        409 `requirements_missing`, whose `param` names the first. An `override_reason` waives the
        price and the deployment."""
        values = PublishVariantSerializer.read(request.data)
        variant = selectors.variant(variant_id)
        return self.shown(services.publish_variant(actor=self.actor, variant=variant, **values))


class AdminQualityReportSerializer(RowSerializer):
    """The result of an evaluation of a variant. `document` is the evaluation's own report, which
    has `right`, `asked`, `share`, `low` and `high` at `accuracy.overall`. A `weights_digest` in it
    must be the variant's."""

    variant_id = serializers.CharField(read_only=True)
    document = serializers.JSONField()

    class Meta:
        model = QualityReport
        fields = (
            "id", "variant_id", "weights_digest", "document", "question_count", "accuracy",
            "accuracy_low", "accuracy_high", "created_at",
        )  # fmt: skip
        read_only_fields = tuple(sorted({*fields} - {"document"}))


class RecordQuality(OperatorApiView):
    """The quality reports of a variant, the newest of which counts."""

    serializer_class = AdminQualityReportSerializer
    write_permission = Permission.CATALOG_WRITE

    @idempotent
    @extend_schema(
        operation_id="admin_quality_reports_create", responses={201: AdminQualityReportSerializer}
    )
    def post(self, request: Request, variant_id: str) -> Response:
        """Record a quality report, without which no quantized variant is published."""
        values = AdminQualityReportSerializer.read(request.data)
        variant = selectors.variant(variant_id)
        report = services.record_quality(actor=self.actor, variant=variant, **values)
        return self.shown(report, status=201)


class WithdrawVariant(OperatorApiView):
    """The withdrawal of a variant."""

    serializer_class = AdminVariantSerializer
    write_permission = Permission.CATALOG_WRITE

    @idempotent
    @extend_schema(operation_id="admin_variants_withdraw", request=None)
    def post(self, request: Request, variant_id: str) -> Response:
        """Remove a variant from the customers' list. A model's default cannot be withdrawn."""
        variant = selectors.variant(variant_id)
        return self.shown(services.withdraw_variant(actor=self.actor, variant=variant))


class ArchiveVariant(OperatorApiView):
    """The archiving of a variant."""

    serializer_class = AdminVariantSerializer
    write_permission = Permission.CATALOG_WRITE

    @idempotent
    @extend_schema(operation_id="admin_variants_archive", request=None)
    def post(self, request: Request, variant_id: str) -> Response:
        """Archive a withdrawn variant whose deployments have ended, for good. Its precision is free
        for another variant then."""
        variant = selectors.variant(variant_id)
        return self.shown(retirement.archive_variant(actor=self.actor, variant=variant))


class AdminDeploymentList(OperatorApiView):
    """All deployments."""

    serializer_class = AdminDeploymentSerializer
    write_permission = Permission.CATALOG_WRITE

    @extend_schema(operation_id="admin_deployments_list", parameters=[VariantFilterSerializer])
    def get(self, request: Request) -> Response:
        """List deployments, newest first."""
        return self.filtered_page(selectors.deployments(), VariantFilterSerializer)

    @idempotent
    @extend_schema(
        operation_id="admin_deployments_create", responses={201: AdminDeploymentSerializer}
    )
    def post(self, request: Request) -> Response:
        """Add a deployment. The fleet starts `replicas_min` replicas."""
        values = AdminDeploymentSerializer.read(request.data)
        return self.shown(services.create_deployment(actor=self.actor, **values), status=201)


@versioned(AdminDeploymentChangesSerializer)
class AdminDeploymentDetail(OperatorApiView):
    """One deployment."""

    serializer_class = AdminDeploymentSerializer
    write_permission = Permission.CATALOG_WRITE

    @extend_schema(operation_id="admin_deployments_retrieve")
    def get(self, request: Request, deployment_id: str) -> Response:
        """Retrieve a deployment."""
        return self.shown(selectors.deployment(deployment_id))

    @extend_schema(
        operation_id="admin_deployments_update", request=AdminDeploymentChangesSerializer
    )
    def patch(self, request: Request, deployment_id: str) -> Response:
        """Change a deployment, all or nothing. A `replicas_min` of 0 stops it."""
        changes = AdminDeploymentChangesSerializer.read(request.data, partial=True)
        deployment = selectors.deployment(deployment_id)
        return self.shown(
            services.update_deployment(actor=self.actor, deployment=deployment, changes=changes)
        )

    @extend_schema(operation_id="admin_deployments_delete", responses={204: None})
    def delete(self, request: Request, deployment_id: str) -> Response:
        """Delete an ended deployment. If usage or figures of its replicas refer to it, the answer
        is 409 `referenced`."""
        deployment = selectors.deployment(deployment_id)
        retirement.delete_deployment(actor=self.actor, deployment=deployment)
        return Response(status=204)


class EndDeployment(OperatorApiView):
    """The end of a deployment."""

    serializer_class = AdminDeploymentSerializer
    write_permission = Permission.CATALOG_WRITE

    @idempotent
    @extend_schema(operation_id="admin_deployments_end", request=None)
    def post(self, request: Request, deployment_id: str) -> Response:
        """End a stopped deployment for good: gateways and the fleet forget it."""
        deployment = selectors.deployment(deployment_id)
        return self.shown(retirement.end_deployment(actor=self.actor, deployment=deployment))

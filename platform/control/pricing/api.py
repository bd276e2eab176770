"""The catalog of an organization in the management API, with prices and quality reports."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from control.api.serializers import ClosedSerializer
from control.catalog import selectors
from control.catalog.models import Model, QualityReport, Variant
from control.organizations.access import get_access
from control.organizations.models import Organization
from control.pricing.models import Price
from control.pricing.selectors import Schedule, schedules_in_force


@dataclass(frozen=True, slots=True)
class VariantOffer:
    """A variant with its price schedule for the organization and its newest quality report."""

    variant: Variant
    schedule: Schedule
    report: QualityReport | None

    @property
    def price(self) -> Price | None:
        """The price of the base band; None where the variant has none."""
        return next(iter(self.schedule), None)

    @property
    def public_id(self) -> str:
        """The name that customers put in `model`."""
        return str(self.variant)


class PriceSerializer(ClosedSerializer):
    """A price in nano-dollars per million tokens, for requests with at least `input_tokens_min`
    input tokens.

    `is_contract` distinguishes the organization's own price from the list price.
    """

    price_id = serializers.CharField(source="id")
    input_tokens_min = serializers.IntegerField()
    is_contract = serializers.BooleanField()
    input_nanos = serializers.IntegerField()
    cached_input_nanos = serializers.IntegerField()
    output_nanos = serializers.IntegerField()
    effective_at = serializers.DateTimeField(source="book.effective_at")


class QualitySerializer(ClosedSerializer):
    """A quality report; `document` is the evaluation's own report."""

    accuracy = serializers.FloatField()
    accuracy_low = serializers.FloatField()
    accuracy_high = serializers.FloatField()
    question_count = serializers.IntegerField()
    perplexity = serializers.FloatField(allow_null=True)
    size_bytes = serializers.IntegerField(allow_null=True)
    tokens_per_second = serializers.FloatField(allow_null=True)
    skills = serializers.JSONField()
    document = serializers.JSONField()
    created_at = serializers.DateTimeField()


class VariantSerializer(ClosedSerializer):
    """A published variant."""

    id = serializers.CharField(source="variant.id")
    public_id = serializers.CharField()
    precision = serializers.CharField(source="variant.precision")
    is_default = serializers.BooleanField(source="variant.is_default")
    context_tokens = serializers.IntegerField(source="variant.context_tokens")
    output_tokens_max = serializers.IntegerField(source="variant.output_tokens_max")
    dimensions = serializers.IntegerField(source="variant.dimensions", allow_null=True)
    parameter_count = serializers.IntegerField(source="variant.parameter_count", allow_null=True)
    size_bytes = serializers.IntegerField(source="variant.size_bytes", allow_null=True)
    price = PriceSerializer(allow_null=True)
    prices = PriceSerializer(source="schedule", many=True)
    quality = QualitySerializer(source="report", allow_null=True)


class ModelSerializer(ClosedSerializer):
    """A model with its published variants."""

    id = serializers.CharField()
    public_id = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    task = serializers.CharField()
    created_at = serializers.DateTimeField()
    variants = serializers.SerializerMethodField()

    @extend_schema_field(VariantSerializer(many=True))
    def get_variants(self, model: Model) -> object:
        """Return the variants with their current prices."""
        schedules: Mapping[str, Schedule] = self.context["schedules"]
        return VariantSerializer(offers(model, schedules), many=True).data


class ModelList(GenericAPIView[Model]):
    """The models that an organization may use."""

    serializer_class = ModelSerializer

    @extend_schema(operation_id="models_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List models with variants, prices and quality reports."""
        found = get_access(request, organization_id)
        page = self.paginate_queryset(selectors.models_for(found.organization))
        shown = _shown(page, found.organization, timezone.now(), many=True)
        return self.get_paginated_response(shown)


class ModelDetail(GenericAPIView[Model]):
    """One model."""

    serializer_class = ModelSerializer

    def get(self, request: Request, organization_id: str, model: str) -> Response:
        """Show a model by its id or public id."""
        found = get_access(request, organization_id)
        row = selectors.model_for(found.organization, model)
        return Response(_shown(row, found.organization, timezone.now()))


def offers(model: Model, schedules: Mapping[str, Schedule]) -> list[VariantOffer]:
    """Return a model's prefetched variants, each with its prices and newest report."""
    return [
        VariantOffer(
            variant=variant,
            schedule=schedules.get(variant.id, ()),
            report=next(iter(variant.quality_reports.all()), None),
        )
        for variant in model.variants.all()
    ]


def _shown(models: object, organization: Organization, at: datetime, many: bool = False) -> object:
    context = {"schedules": schedules_in_force(organization, at)}
    return ModelSerializer(models, many=many, context=context).data

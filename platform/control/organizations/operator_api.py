"""The operators' view of customers in the management API."""

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control.accounts.models import EMAIL_MAX
from control.api.idempotency import idempotent
from control.api.operator_views import OperatorApiView, OperatorSerializer, RowSerializer
from control.api.versions import versioned
from control.audit.operator_access import record_organization_view
from control.forms import REASON_MAX
from control.organizations import selectors, services
from control.organizations.members import invite_member
from control.organizations.models import Organization, OrganizationStatus
from control.organizations.services import suspension_effects
from control.permissions import Permission, Role

TERMS = ("billing_mode", "spend_limit_nanos", "credit_limit_nanos", "weight")


class AdminOrganizationSerializer(RowSerializer):
    """A customer. `spend_limit_nanos` is nano-dollars per UTC month, `credit_limit_nanos` what it
    may owe before tax while it is postpaid, `weight` a share of a busy pool. `allowed_regions`
    lists the only regions of fleets that may process its requests; an empty list allows any. Only
    it and the name are changed here."""

    class Meta:
        model = Organization
        fields = (
            "id", "name", "status", "suspended_reason", *TERMS, "idempotency_enabled",
            "allowed_regions", "created_at",
        )  # fmt: skip
        read_only_fields = tuple(name for name in fields if name not in ("name", "allowed_regions"))


class NewCustomerSerializer(RowSerializer):
    """A new customer: its name, the address of its first owner, and how it pays."""

    owner_email = serializers.EmailField(max_length=EMAIL_MAX)

    class Meta:
        model = Organization
        fields = ("name", "owner_email", "billing_mode")


class TermsSerializer(RowSerializer):
    """The terms of a customer: how it pays, its limit in nano-dollars per UTC month (null: none),
    what it may owe before tax while it is postpaid, and its share of a busy pool."""

    class Meta:
        model = Organization
        fields = TERMS


class ReasonSerializer(OperatorSerializer):
    """Why it is done, for the audit log."""

    reason = serializers.CharField(required=False, max_length=REASON_MAX, allow_blank=True)


class OrganizationFilterSerializer(OperatorSerializer):
    """Filters of customers. `search` finds a part of the name, of the id or of a member's email."""

    search = serializers.CharField(required=False)
    status = serializers.ChoiceField(OrganizationStatus.choices, required=False)


class AdminOrganizationList(OperatorApiView):
    """All customers."""

    serializer_class = AdminOrganizationSerializer
    write_permission = Permission.CUSTOMERS_WRITE

    @extend_schema(
        operation_id="admin_organizations_list", parameters=[OrganizationFilterSerializer]
    )
    def get(self, request: Request) -> Response:
        """List or search customers, newest first."""
        return self.page(
            selectors.search_organizations(**self.filters(OrganizationFilterSerializer))
        )

    @idempotent
    @extend_schema(
        operation_id="admin_organizations_create",
        request=NewCustomerSerializer,
        responses={201: AdminOrganizationSerializer},
    )
    def post(self, request: Request) -> Response:
        """Add a customer with a default project, and email its owner an invitation, valid for a
        week. API keys can be created for it at once."""
        values = NewCustomerSerializer.read(request.data)
        email = values.pop("owner_email")
        with transaction.atomic():
            organization = services.create_organization(actor=self.actor, owner=None, **values)
            invite_member(actor=self.actor, organization=organization, email=email, role=Role.OWNER)
        return self.shown(organization, status=201)


@versioned(AdminOrganizationSerializer)
class AdminOrganizationDetail(OperatorApiView):
    """One customer."""

    serializer_class = AdminOrganizationSerializer
    write_permission = Permission.CUSTOMERS_WRITE

    @extend_schema(operation_id="admin_organizations_retrieve")
    def get(self, request: Request, organization_id: str) -> Response:
        """Retrieve a customer. The view is in the customer's audit log."""
        organization = selectors.organization(organization_id)
        record_organization_view(self.actor, organization.id, page="admin_organizations_retrieve")
        return self.shown(organization)

    @extend_schema(operation_id="admin_organizations_update")
    @transaction.atomic
    def patch(self, request: Request, organization_id: str) -> Response:
        """Rename a customer, or bind it to regions, all or nothing."""
        changes = AdminOrganizationSerializer.read(request.data, partial=True)
        organization = selectors.organization(organization_id)
        if "allowed_regions" in changes:
            organization = services.set_allowed_regions(
                actor=self.actor,
                organization=organization,
                allowed_regions=changes["allowed_regions"],
            )
        if "name" in changes:
            organization = services.rename_organization(
                actor=self.actor, organization=organization, name=changes["name"]
            )
        return self.shown(organization)


class SuspendSerializer(OperatorSerializer):
    """Why a customer is suspended: its members read it in the console, its owners in an email."""

    reason = serializers.CharField(max_length=REASON_MAX)


class SuspensionPreviewSerializer(OperatorSerializer):
    """The effects of suspending a customer now, a sentence each."""

    effects = serializers.ListField(child=serializers.CharField())


class SuspendOrganization(OperatorApiView):
    """The suspension of a customer."""

    serializer_class = AdminOrganizationSerializer
    write_permission = Permission.CUSTOMERS_WRITE

    @extend_schema(
        operation_id="admin_organizations_suspension_preview",
        responses={200: SuspensionPreviewSerializer},
    )
    def get(self, request: Request, organization_id: str) -> Response:
        """Tell what follows if a customer is suspended."""
        organization = selectors.organization(organization_id)
        page = "admin_organizations_suspension_preview"
        record_organization_view(self.actor, organization.id, page=page)
        return Response({"effects": suspension_effects(organization)})

    @idempotent
    @extend_schema(operation_id="admin_organizations_suspend", request=SuspendSerializer)
    def post(self, request: Request, organization_id: str) -> Response:
        """Suspend a customer: its keys are refused within a second, its members can still read.
        The reason is shown to its members and sent to its owners."""
        values = SuspendSerializer.read(request.data)
        organization = selectors.organization(organization_id)
        return self.shown(
            services.suspend_organization(actor=self.actor, organization=organization, **values)
        )


class ResumeOrganization(OperatorApiView):
    """The end of a suspension."""

    serializer_class = AdminOrganizationSerializer
    write_permission = Permission.CUSTOMERS_WRITE

    @idempotent
    @extend_schema(operation_id="admin_organizations_resume", request=ReasonSerializer)
    def post(self, request: Request, organization_id: str) -> Response:
        """End a suspension: keys that were not revoked work again."""
        values = ReasonSerializer.read(request.data)
        organization = selectors.organization(organization_id)
        return self.shown(
            services.resume_organization(actor=self.actor, organization=organization, **values)
        )


@versioned(TermsSerializer)
class OrganizationTerms(OperatorApiView):
    """The terms of a customer."""

    serializer_class = TermsSerializer
    write_permission = Permission.FINANCE_WRITE

    @extend_schema(operation_id="admin_organizations_terms")
    def get(self, request: Request, organization_id: str) -> Response:
        """Retrieve a customer's terms. The view is in the customer's audit log."""
        organization = selectors.organization(organization_id)
        record_organization_view(self.actor, organization.id, page="admin_organizations_terms")
        return self.shown(organization)

    @extend_schema(operation_id="admin_organizations_set_terms")
    @transaction.atomic
    def patch(self, request: Request, organization_id: str) -> Response:
        """Change a customer's terms, all or nothing. Gateways apply them within a second."""
        changes = TermsSerializer.read(request.data, partial=True)
        organization = selectors.locked_organization(organization_id)
        terms = {name: getattr(organization, name) for name in TERMS} | changes
        return self.shown(
            services.set_organization_terms(actor=self.actor, organization=organization, **terms)
        )

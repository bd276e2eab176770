"""Organizations and projects in the management API."""

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from control.actor import person
from control.api.idempotency import idempotent
from control.api.pagination import SequencePagination
from control.api.serializers import ClosedSerializer
from control.tenants import selectors, services
from control.tenants.access import access, caller, organization_of_key
from control.tenants.checks import NANOS_MAX
from control.tenants.models import NAME_MAX, ORIGIN_MAX, Organization, Project
from control.tenants.permissions import Action


class OrganizationSerializer(ClosedSerializer):
    """An organization. Limits are nano-dollars per UTC month."""

    id = serializers.CharField(read_only=True)
    name = serializers.CharField(max_length=NAME_MAX)
    status = serializers.CharField(read_only=True)
    billing_mode = serializers.CharField(read_only=True)
    spend_limit_nanos = serializers.IntegerField(
        min_value=0, max_value=NANOS_MAX, allow_null=True, required=False
    )
    takes_idempotency_keys = serializers.BooleanField(
        required=False,
        help_text="Whether requests may carry Idempotency-Key. Their answers are then kept for"
        " 24 hours, encrypted.",
    )
    created_at = serializers.DateTimeField(read_only=True)


class NewOrganizationSerializer(ClosedSerializer):
    """An organization's name."""

    name = serializers.CharField(max_length=NAME_MAX)


class ProjectSerializer(ClosedSerializer):
    """A project. Limits are nano-dollars per UTC month; pages of the allowed origins may call with
    its keys."""

    id = serializers.CharField(read_only=True)
    organization_id = serializers.CharField(read_only=True)
    name = serializers.CharField(max_length=NAME_MAX)
    spend_limit_nanos = serializers.IntegerField(
        min_value=0, max_value=NANOS_MAX, allow_null=True, required=False
    )
    allowed_origins = serializers.ListField(
        child=serializers.CharField(max_length=ORIGIN_MAX), max_length=100, required=False
    )
    created_at = serializers.DateTimeField(read_only=True)
    archived_at = serializers.DateTimeField(read_only=True, allow_null=True)


class Organizations(GenericAPIView[Organization]):
    """The organizations of the caller."""

    serializer_class = OrganizationSerializer
    pagination_class = SequencePagination

    @extend_schema(operation_id="organizations_list", responses=OrganizationSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the organizations that the caller belongs to; a key's is one."""
        mine = organization_of_key(request)
        found = [mine] if mine else selectors.organizations_of(caller(request))
        page = self.paginate_queryset(found)
        return self.get_paginated_response(OrganizationSerializer(page, many=True).data)

    @idempotent
    @extend_schema(request=NewOrganizationSerializer, responses={201: OrganizationSerializer})
    def post(self, request: Request) -> Response:
        """Make an organization that the caller owns."""
        user = caller(request)
        asked = NewOrganizationSerializer.read(request.data)
        organization = services.create_organization(actor=person(user), owner=user, **asked)
        return Response(OrganizationSerializer(organization).data, status=201)


class OneOrganization(GenericAPIView[Organization]):
    """One organization of the caller."""

    serializer_class = OrganizationSerializer

    def get(self, request: Request, organization_id: str) -> Response:
        """Show an organization."""
        return Response(OrganizationSerializer(access(request, organization_id).organization).data)

    @transaction.atomic
    def patch(self, request: Request, organization_id: str) -> Response:
        """Rename an organization, set its monthly limit, or whether it takes idempotency keys, all
        or nothing."""
        found = access(request, organization_id)
        asked = OrganizationSerializer.read(request.data, partial=True)
        organization = found.organization
        if "name" in asked:
            organization = services.rename_organization(
                actor=found.actor, organization=organization, name=asked["name"]
            )
        if "spend_limit_nanos" in asked:
            organization = services.set_organization_limit(
                actor=found.actor,
                organization=organization,
                spend_limit_nanos=asked["spend_limit_nanos"],
            )
        if "takes_idempotency_keys" in asked:
            organization = services.set_taking_idempotency_keys(
                actor=found.actor,
                organization=organization,
                takes_idempotency_keys=asked["takes_idempotency_keys"],
            )
        return Response(OrganizationSerializer(organization).data)


class ConsequenceSerializer(ClosedSerializer):
    """What follows from deleting an organization; an obstacle forbids it."""

    words = serializers.CharField(read_only=True)
    is_obstacle = serializers.BooleanField(read_only=True)


class DeletionSerializer(ClosedSerializer):
    """What deleting an organization would do, and whether nothing stands in the way."""

    may_be_deleted = serializers.BooleanField(read_only=True)
    consequences = ConsequenceSerializer(many=True, read_only=True)


class Deletion(GenericAPIView[Organization]):
    """The end of an organization."""

    serializer_class = DeletionSerializer

    def get(self, request: Request, organization_id: str) -> Response:
        """Say what deleting an organization would do. Nothing is changed."""
        found = access(request, organization_id, Action.DELETE_ORGANIZATION)
        follows = services.consequences(found.organization)
        may = not any(each.is_obstacle for each in follows)
        data = {"may_be_deleted": may, "consequences": follows}
        return Response(DeletionSerializer(data).data)

    @idempotent
    @extend_schema(request=NewOrganizationSerializer, responses=OrganizationSerializer)
    def post(self, request: Request, organization_id: str) -> Response:
        """Delete an organization, whose name is the proof that it is meant: its keys stop working
        within a second, its members lose their seats, for good. Only an owner may, and none that
        owes money is deleted."""
        found = access(request, organization_id, Action.DELETE_ORGANIZATION)
        asked = NewOrganizationSerializer.read(request.data)
        deleted = services.delete_organization(
            actor=found.actor, organization=found.organization, name=asked["name"]
        )
        return Response(OrganizationSerializer(deleted).data)


class Projects(GenericAPIView[Project]):
    """The projects of an organization."""

    serializer_class = ProjectSerializer

    @extend_schema(operation_id="projects_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List projects, the archived ones too, the newest first."""
        found = access(request, organization_id)
        rows = selectors.projects(found.organization, with_archived=True)
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(ProjectSerializer(page, many=True).data)

    @idempotent
    @extend_schema(responses={201: ProjectSerializer})
    def post(self, request: Request, organization_id: str) -> Response:
        """Add a project."""
        found = access(request, organization_id, Action.MANAGE_PROJECTS)
        asked = ProjectSerializer.read(request.data)
        project = services.create_project(
            actor=found.actor, organization=found.organization, **asked
        )
        return Response(ProjectSerializer(project).data, status=201)


class OneProject(GenericAPIView[Project]):
    """One project of an organization."""

    serializer_class = ProjectSerializer

    def get(self, request: Request, organization_id: str, project_id: str) -> Response:
        """Show a project."""
        found = access(request, organization_id)
        project = selectors.project(found.organization, project_id)
        return Response(ProjectSerializer(project).data)

    @transaction.atomic
    def patch(self, request: Request, organization_id: str, project_id: str) -> Response:
        """Rename a project, set its monthly limit or its allowed origins, all or nothing."""
        found = access(request, organization_id)
        project = selectors.project(found.organization, project_id)
        asked = ProjectSerializer.read(request.data, partial=True)
        if "name" in asked:
            project = services.rename_project(
                actor=found.actor, project=project, name=asked["name"]
            )
        if "spend_limit_nanos" in asked:
            limit_nanos = asked["spend_limit_nanos"]
            project = services.set_project_limit(
                actor=found.actor, project=project, spend_limit_nanos=limit_nanos
            )
        if "allowed_origins" in asked:
            project = services.set_project_origins(
                actor=found.actor, project=project, allowed_origins=asked["allowed_origins"]
            )
        return Response(ProjectSerializer(project).data)


class ArchiveProject(GenericAPIView[Project]):
    """The end of a project."""

    serializer_class = ProjectSerializer

    @idempotent
    @extend_schema(request=None)
    def post(self, request: Request, organization_id: str, project_id: str) -> Response:
        """Archive a project; its keys stop working within a second, for good."""
        found = access(request, organization_id, Action.MANAGE_PROJECTS)
        project = selectors.project(found.organization, project_id)
        archived = services.archive_project(actor=found.actor, project=project)
        return Response(ProjectSerializer(archived).data)


class RestoreProject(GenericAPIView[Project]):
    """The way back of an archived project."""

    serializer_class = ProjectSerializer

    @idempotent
    @extend_schema(request=None)
    def post(self, request: Request, organization_id: str, project_id: str) -> Response:
        """Open an archived project again; its keys stay ended."""
        found = access(request, organization_id, Action.MANAGE_PROJECTS)
        project = selectors.project(found.organization, project_id)
        restored = services.restore_project(actor=found.actor, project=project)
        return Response(ProjectSerializer(restored).data)

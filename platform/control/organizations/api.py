"""Organizations, projects, members, invitations and the audit log in the management API."""

from django.db import transaction
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from control.accounts.models import EMAIL_MAX, NAME_MAX
from control.api.idempotency import idempotent
from control.api.pagination import SequencePagination
from control.api.serializers import ClosedSerializer
from control.api.versions import versioned
from control.audit.api import AuditEventFilterSerializer, AuditEventSerializer
from control.audit.models import AuditEvent
from control.audit.pseudonyms import NameResolver
from control.audit.selectors import all_events as audit_events
from control.db.models import InvitationState
from control.organizations import selectors
from control.organizations.access import get_access, get_user, organization_of_key
from control.organizations.deletion import delete_organization, preview_deletion
from control.organizations.members import (
    accept_invitation,
    change_role,
    invite_member,
    remove_member,
    revoke_invitation,
)
from control.organizations.models import ORIGIN_MAX, Invitation, Membership, Organization, Project
from control.organizations.projects import (
    archive_project,
    create_project,
    rename_project,
    restore_project,
    set_project_limit,
    set_project_origins,
)
from control.organizations.services import (
    create_organization,
    rename_organization,
    set_idempotency_enabled,
    set_organization_limit,
)
from control.organizations.validators import NANOS_MAX
from control.permissions import Actor, Permission, Role

SECRET_MAX = 100
TRANSFER_KEYS_TO = OpenApiParameter(
    "transfer_keys_to", str, description="Id of the member who takes over the API keys."
)
NAME = OpenApiParameter(
    "name", str, required=True, description="The organization's name, as a confirmation."
)


class OrganizationSerializer(ClosedSerializer):
    """An organization. Limits are nano-dollars per UTC month."""

    id = serializers.CharField(read_only=True)
    name = serializers.CharField(max_length=NAME_MAX)
    status = serializers.CharField(read_only=True)
    billing_mode = serializers.CharField(read_only=True)
    spend_limit_nanos = serializers.IntegerField(
        min_value=0, max_value=NANOS_MAX, allow_null=True, required=False
    )
    idempotency_enabled = serializers.BooleanField(
        required=False,
        help_text="Whether requests may carry Idempotency-Key. Their answers are then kept for"
        " 24 hours, encrypted.",
    )
    allowed_regions = serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        help_text="The only regions in which requests are processed; empty for any. Your operator"
        " sets it.",
    )
    created_at = serializers.DateTimeField(read_only=True)


class NewOrganizationSerializer(ClosedSerializer):
    """An organization's name."""

    name = serializers.CharField(max_length=NAME_MAX)


class ProjectSerializer(ClosedSerializer):
    """A project. Limits are nano-dollars per UTC month. Pages of the allowed origins may call with
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


class OrganizationList(GenericAPIView[Organization]):
    """The organizations of the caller."""

    serializer_class = OrganizationSerializer
    pagination_class = SequencePagination

    @extend_schema(operation_id="organizations_list", responses=OrganizationSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the organizations that the caller belongs to; an API key belongs to one."""
        organization = organization_of_key(request)
        rows = [organization] if organization else selectors.organizations_of(get_user(request))
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(OrganizationSerializer(page, many=True).data)

    @idempotent
    @extend_schema(request=NewOrganizationSerializer, responses={201: OrganizationSerializer})
    def post(self, request: Request) -> Response:
        """Create an organization that the caller owns."""
        user = get_user(request)
        values = NewOrganizationSerializer.read(request.data)
        organization = create_organization(actor=Actor.for_user(user), owner=user, **values)
        return Response(OrganizationSerializer(organization).data, status=201)


@versioned(OrganizationSerializer)
class OrganizationDetail(GenericAPIView[Organization]):
    """One organization of the caller."""

    serializer_class = OrganizationSerializer

    def get(self, request: Request, organization_id: str) -> Response:
        """Retrieve an organization."""
        return Response(
            OrganizationSerializer(get_access(request, organization_id).organization).data
        )

    @transaction.atomic
    def patch(self, request: Request, organization_id: str) -> Response:
        """Change an organization's name, monthly limit or idempotency setting, all or nothing."""
        access = get_access(request, organization_id)
        values = OrganizationSerializer.read(request.data, partial=True)
        organization = access.organization
        if "name" in values:
            organization = rename_organization(
                actor=access.actor, organization=organization, name=values["name"]
            )
        if "spend_limit_nanos" in values:
            organization = set_organization_limit(
                actor=access.actor,
                organization=organization,
                spend_limit_nanos=values["spend_limit_nanos"],
            )
        if "idempotency_enabled" in values:
            organization = set_idempotency_enabled(
                actor=access.actor,
                organization=organization,
                idempotency_enabled=values["idempotency_enabled"],
            )
        return Response(OrganizationSerializer(organization).data)

    @extend_schema(parameters=[NAME], responses={204: None})
    def delete(self, request: Request, organization_id: str) -> Response:
        """Delete an organization for good. The query repeats its name as a confirmation. Its keys
        stop working within a second and its members lose access. Only an owner may delete it, and
        only if it owes no money."""
        access = get_access(request, organization_id, Permission.ORGANIZATION_DELETE)
        values = NewOrganizationSerializer.read(request.query_params.dict())
        delete_organization(
            actor=access.actor, organization=access.organization, name=values["name"]
        )
        return Response(status=204)


class DeletionEffectSerializer(ClosedSerializer):
    """An effect of deleting an organization; an obstacle prevents the deletion."""

    message = serializers.CharField(source="words", read_only=True)
    is_obstacle = serializers.BooleanField(read_only=True)


class DeletionPreviewSerializer(ClosedSerializer):
    """The effects of deleting an organization, and whether it can be deleted."""

    can_be_deleted = serializers.BooleanField(read_only=True)
    effects = DeletionEffectSerializer(many=True, read_only=True)


class DeletionPreview(GenericAPIView[Organization]):
    """The effects that the deletion of an organization would have."""

    serializer_class = DeletionPreviewSerializer

    def get(self, request: Request, organization_id: str) -> Response:
        """Preview the deletion of an organization. Nothing is changed."""
        access = get_access(request, organization_id, Permission.ORGANIZATION_DELETE)
        effects = preview_deletion(access.organization)
        has_obstacle = any(effect.is_obstacle for effect in effects)
        data = {"can_be_deleted": not has_obstacle, "effects": effects}
        return Response(DeletionPreviewSerializer(data).data)


class ProjectList(GenericAPIView[Project]):
    """The projects of an organization."""

    serializer_class = ProjectSerializer

    @extend_schema(operation_id="projects_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List projects, including archived ones, oldest first."""
        access = get_access(request, organization_id)
        rows = selectors.projects(access.organization, with_archived=True)
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(ProjectSerializer(page, many=True).data)

    @idempotent
    @extend_schema(responses={201: ProjectSerializer})
    def post(self, request: Request, organization_id: str) -> Response:
        """Create a project."""
        access = get_access(request, organization_id, Permission.PROJECTS_WRITE)
        values = ProjectSerializer.read(request.data)
        project = create_project(actor=access.actor, organization=access.organization, **values)
        return Response(ProjectSerializer(project).data, status=201)


@versioned(ProjectSerializer)
class ProjectDetail(GenericAPIView[Project]):
    """One project of an organization."""

    serializer_class = ProjectSerializer

    def get(self, request: Request, organization_id: str, project_id: str) -> Response:
        """Retrieve a project."""
        access = get_access(request, organization_id)
        project = selectors.project(access.organization, project_id)
        return Response(ProjectSerializer(project).data)

    @transaction.atomic
    def patch(self, request: Request, organization_id: str, project_id: str) -> Response:
        """Change a project's name, monthly limit or allowed origins, all or nothing."""
        access = get_access(request, organization_id)
        project = selectors.project(access.organization, project_id)
        values = ProjectSerializer.read(request.data, partial=True)
        if "name" in values:
            project = rename_project(actor=access.actor, project=project, name=values["name"])
        if "spend_limit_nanos" in values:
            limit_nanos = values["spend_limit_nanos"]
            project = set_project_limit(
                actor=access.actor, project=project, spend_limit_nanos=limit_nanos
            )
        if "allowed_origins" in values:
            project = set_project_origins(
                actor=access.actor, project=project, allowed_origins=values["allowed_origins"]
            )
        return Response(ProjectSerializer(project).data)


class ArchiveProject(GenericAPIView[Project]):
    """The archiving of a project."""

    serializer_class = ProjectSerializer

    @idempotent
    @extend_schema(request=None)
    def post(self, request: Request, organization_id: str, project_id: str) -> Response:
        """Archive a project. Its keys stop working within a second, for good."""
        access = get_access(request, organization_id, Permission.PROJECTS_WRITE)
        project = selectors.project(access.organization, project_id)
        archived = archive_project(actor=access.actor, project=project)
        return Response(ProjectSerializer(archived).data)


class RestoreProject(GenericAPIView[Project]):
    """The restoration of an archived project."""

    serializer_class = ProjectSerializer

    @idempotent
    @extend_schema(request=None)
    def post(self, request: Request, organization_id: str, project_id: str) -> Response:
        """Restore an archived project. Its keys stay revoked."""
        access = get_access(request, organization_id, Permission.PROJECTS_WRITE)
        project = selectors.project(access.organization, project_id)
        restored = restore_project(actor=access.actor, project=project)
        return Response(ProjectSerializer(restored).data)


class MemberSerializer(ClosedSerializer):
    """A member; only the role can be set."""

    id = serializers.CharField(read_only=True)
    user_id = serializers.CharField(read_only=True)
    email = serializers.EmailField(source="user.email", read_only=True)
    name = serializers.CharField(source="user.name", read_only=True)
    role = serializers.ChoiceField(choices=Role.choices)
    created_at = serializers.DateTimeField(read_only=True)


class InvitationSerializer(ClosedSerializer):
    """An invitation; an expired one can be sent again. Its secret is sent by email only."""

    id = serializers.CharField(read_only=True)
    email = serializers.EmailField(max_length=EMAIL_MAX)
    role = serializers.ChoiceField(choices=Role.choices)
    state = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField(read_only=True)
    expires_at = serializers.DateTimeField(read_only=True)

    @extend_schema_field(serializers.ChoiceField(choices=InvitationState.choices))
    def get_state(self, invitation: Invitation) -> str:
        """Return whether it can be accepted: `open`, `expired`, `used` or `withdrawn`."""
        return invitation.state(timezone.now())


class AcceptanceSerializer(ClosedSerializer):
    """The secret from the invitation's email."""

    secret = serializers.CharField(max_length=SECRET_MAX)


class MemberList(GenericAPIView[Membership]):
    """The members of an organization."""

    serializer_class = MemberSerializer

    @extend_schema(operation_id="members_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List members, oldest first."""
        access = get_access(request, organization_id)
        page = self.paginate_queryset(selectors.members(access.organization))
        return self.get_paginated_response(MemberSerializer(page, many=True).data)


@versioned(MemberSerializer)
class MemberDetail(GenericAPIView[Membership]):
    """One member of an organization."""

    serializer_class = MemberSerializer

    def get(self, request: Request, organization_id: str, member_id: str) -> Response:
        """Retrieve a member."""
        access = get_access(request, organization_id)
        return Response(MemberSerializer(selectors.member(access.organization, member_id)).data)

    def patch(self, request: Request, organization_id: str, member_id: str) -> Response:
        """Change a member's role."""
        access = get_access(request, organization_id)
        membership = selectors.member(access.organization, member_id)
        values = MemberSerializer.read(request.data)
        membership = change_role(actor=access.actor, membership=membership, role=values["role"])
        return Response(MemberSerializer(membership).data)

    @extend_schema(parameters=[TRANSFER_KEYS_TO])
    def delete(self, request: Request, organization_id: str, member_id: str) -> Response:
        """Remove a member, or leave the organization. API keys that the member made end unless
        `transfer_keys_to` names a member who takes them over."""
        access = get_access(request, organization_id)
        membership = selectors.member(access.organization, member_id)
        target_id = request.query_params.get("transfer_keys_to")
        target = selectors.member(access.organization, target_id) if target_id else None
        remove_member(actor=access.actor, membership=membership, heir=target)
        return Response(status=204)


class InvitationList(GenericAPIView[Invitation]):
    """The invitations of an organization that wait for an answer."""

    serializer_class = InvitationSerializer

    @extend_schema(operation_id="invitations_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List the invitations that are neither used nor withdrawn."""
        access = get_access(request, organization_id, Permission.MEMBERS_WRITE)
        page = self.paginate_queryset(selectors.open_invitations(access.organization))
        return self.get_paginated_response(InvitationSerializer(page, many=True).data)

    @idempotent
    @extend_schema(responses={201: InvitationSerializer})
    def post(self, request: Request, organization_id: str) -> Response:
        """Invite a person by email."""
        access = get_access(request, organization_id, Permission.MEMBERS_WRITE)
        values = InvitationSerializer.read(request.data)
        invitation, _ = invite_member(
            actor=access.actor, organization=access.organization, **values
        )
        return Response(InvitationSerializer(invitation).data, status=201)


class InvitationDetail(GenericAPIView[Invitation]):
    """One open invitation."""

    serializer_class = InvitationSerializer

    def delete(self, request: Request, organization_id: str, invitation_id: str) -> Response:
        """Revoke an invitation."""
        access = get_access(request, organization_id, Permission.MEMBERS_WRITE)
        invitation = selectors.invitation(access.organization, invitation_id)
        revoke_invitation(actor=access.actor, invitation=invitation)
        return Response(status=204)


class AcceptInvitation(GenericAPIView[Invitation]):
    """The acceptance of an invitation."""

    serializer_class = AcceptanceSerializer

    @idempotent
    @extend_schema(
        operation_id="invitations_accept",
        request=AcceptanceSerializer,
        responses={201: MemberSerializer},
    )
    def post(self, request: Request) -> Response:
        """Accept an invitation that was emailed to the caller."""
        values = AcceptanceSerializer.read(request.data)
        membership = accept_invitation(user=get_user(request), secret=values["secret"])
        return Response(MemberSerializer(membership).data, status=201)


class AuditEventList(GenericAPIView[AuditEvent]):
    """The audit log of an organization."""

    serializer_class = AuditEventSerializer
    ordering = ("-id",)

    @extend_schema(operation_id="audit_events_list", parameters=[AuditEventFilterSerializer])
    def get(self, request: Request, organization_id: str) -> Response:
        """List audit events, newest first."""
        access = get_access(request, organization_id, Permission.AUDIT_READ)
        sent = request.query_params.dict()
        filters = AuditEventFilterSerializer.read(
            {name: sent[name] for name in sent.keys() - {"limit", "after"}}
        )
        found = audit_events(organization_id=access.organization.id, **filters)
        events = self.paginate_queryset(found) or []
        context = {"names": NameResolver(events)}
        return self.get_paginated_response(
            AuditEventSerializer(events, many=True, context=context).data
        )

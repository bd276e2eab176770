"""Organizations, projects, members and invitations in the management API."""

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from control.accounts.models import EMAIL_MAX, NAME_MAX
from control.api.idempotency import idempotent
from control.api.pagination import SequencePagination
from control.api.serializers import ClosedSerializer
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
KEYS_TO = OpenApiParameter("keys_to", str, description="Id of the member who takes the API keys.")


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
        found = [mine] if mine else selectors.organizations_of(get_user(request))
        page = self.paginate_queryset(found)
        return self.get_paginated_response(OrganizationSerializer(page, many=True).data)

    @idempotent
    @extend_schema(request=NewOrganizationSerializer, responses={201: OrganizationSerializer})
    def post(self, request: Request) -> Response:
        """Make an organization that the caller owns."""
        user = get_user(request)
        asked = NewOrganizationSerializer.read(request.data)
        organization = create_organization(actor=Actor.for_user(user), owner=user, **asked)
        return Response(OrganizationSerializer(organization).data, status=201)


class OneOrganization(GenericAPIView[Organization]):
    """One organization of the caller."""

    serializer_class = OrganizationSerializer

    def get(self, request: Request, organization_id: str) -> Response:
        """Show an organization."""
        return Response(
            OrganizationSerializer(get_access(request, organization_id).organization).data
        )

    @transaction.atomic
    def patch(self, request: Request, organization_id: str) -> Response:
        """Rename an organization, set its monthly limit, or whether it takes idempotency keys, all
        or nothing."""
        found = get_access(request, organization_id)
        asked = OrganizationSerializer.read(request.data, partial=True)
        organization = found.organization
        if "name" in asked:
            organization = rename_organization(
                actor=found.actor, organization=organization, name=asked["name"]
            )
        if "spend_limit_nanos" in asked:
            organization = set_organization_limit(
                actor=found.actor,
                organization=organization,
                spend_limit_nanos=asked["spend_limit_nanos"],
            )
        if "takes_idempotency_keys" in asked:
            organization = set_idempotency_enabled(
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
        found = get_access(request, organization_id, Permission.ORGANIZATION_DELETE)
        follows = preview_deletion(found.organization)
        may = not any(each.is_obstacle for each in follows)
        data = {"may_be_deleted": may, "consequences": follows}
        return Response(DeletionSerializer(data).data)

    @idempotent
    @extend_schema(request=NewOrganizationSerializer, responses=OrganizationSerializer)
    def post(self, request: Request, organization_id: str) -> Response:
        """Delete an organization, whose name is the proof that it is meant: its keys stop working
        within a second, its members lose their seats, for good. Only an owner may, and none that
        owes money is deleted."""
        found = get_access(request, organization_id, Permission.ORGANIZATION_DELETE)
        asked = NewOrganizationSerializer.read(request.data)
        deleted = delete_organization(
            actor=found.actor, organization=found.organization, name=asked["name"]
        )
        return Response(OrganizationSerializer(deleted).data)


class Projects(GenericAPIView[Project]):
    """The projects of an organization."""

    serializer_class = ProjectSerializer

    @extend_schema(operation_id="projects_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List projects, the archived ones too, the newest first."""
        found = get_access(request, organization_id)
        rows = selectors.projects(found.organization, with_archived=True)
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(ProjectSerializer(page, many=True).data)

    @idempotent
    @extend_schema(responses={201: ProjectSerializer})
    def post(self, request: Request, organization_id: str) -> Response:
        """Add a project."""
        found = get_access(request, organization_id, Permission.PROJECTS_WRITE)
        asked = ProjectSerializer.read(request.data)
        project = create_project(actor=found.actor, organization=found.organization, **asked)
        return Response(ProjectSerializer(project).data, status=201)


class OneProject(GenericAPIView[Project]):
    """One project of an organization."""

    serializer_class = ProjectSerializer

    def get(self, request: Request, organization_id: str, project_id: str) -> Response:
        """Show a project."""
        found = get_access(request, organization_id)
        project = selectors.project(found.organization, project_id)
        return Response(ProjectSerializer(project).data)

    @transaction.atomic
    def patch(self, request: Request, organization_id: str, project_id: str) -> Response:
        """Rename a project, set its monthly limit or its allowed origins, all or nothing."""
        found = get_access(request, organization_id)
        project = selectors.project(found.organization, project_id)
        asked = ProjectSerializer.read(request.data, partial=True)
        if "name" in asked:
            project = rename_project(actor=found.actor, project=project, name=asked["name"])
        if "spend_limit_nanos" in asked:
            limit_nanos = asked["spend_limit_nanos"]
            project = set_project_limit(
                actor=found.actor, project=project, spend_limit_nanos=limit_nanos
            )
        if "allowed_origins" in asked:
            project = set_project_origins(
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
        found = get_access(request, organization_id, Permission.PROJECTS_WRITE)
        project = selectors.project(found.organization, project_id)
        archived = archive_project(actor=found.actor, project=project)
        return Response(ProjectSerializer(archived).data)


class RestoreProject(GenericAPIView[Project]):
    """The way back of an archived project."""

    serializer_class = ProjectSerializer

    @idempotent
    @extend_schema(request=None)
    def post(self, request: Request, organization_id: str, project_id: str) -> Response:
        """Open an archived project again; its keys stay ended."""
        found = get_access(request, organization_id, Permission.PROJECTS_WRITE)
        project = selectors.project(found.organization, project_id)
        restored = restore_project(actor=found.actor, project=project)
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
    """An invitation; its secret goes out by mail only."""

    id = serializers.CharField(read_only=True)
    email = serializers.EmailField(max_length=EMAIL_MAX)
    role = serializers.ChoiceField(choices=Role.choices)
    created_at = serializers.DateTimeField(read_only=True)
    expires_at = serializers.DateTimeField(read_only=True)


class AcceptanceSerializer(ClosedSerializer):
    """What accepts an invitation: the secret of the mail."""

    secret = serializers.CharField(max_length=SECRET_MAX)


class Members(GenericAPIView[Membership]):
    """The members of an organization."""

    serializer_class = MemberSerializer

    @extend_schema(operation_id="members_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List members, the newest first."""
        found = get_access(request, organization_id)
        page = self.paginate_queryset(selectors.members(found.organization))
        return self.get_paginated_response(MemberSerializer(page, many=True).data)


class OneMember(GenericAPIView[Membership]):
    """One member of an organization."""

    serializer_class = MemberSerializer

    def get(self, request: Request, organization_id: str, member_id: str) -> Response:
        """Show a member."""
        found = get_access(request, organization_id)
        return Response(MemberSerializer(selectors.member(found.organization, member_id)).data)

    def patch(self, request: Request, organization_id: str, member_id: str) -> Response:
        """Give a member another role."""
        found = get_access(request, organization_id)
        seat = selectors.member(found.organization, member_id)
        asked = MemberSerializer.read(request.data)
        seat = change_role(actor=found.actor, membership=seat, role=asked["role"])
        return Response(MemberSerializer(seat).data)

    @extend_schema(parameters=[KEYS_TO])
    def delete(self, request: Request, organization_id: str, member_id: str) -> Response:
        """Take a member's seat, or leave. API keys that the member made end, unless `keys_to` names
        a member who takes them."""
        found = get_access(request, organization_id)
        seat = selectors.member(found.organization, member_id)
        keys_to = request.query_params.get("keys_to")
        heir = selectors.member(found.organization, keys_to) if keys_to else None
        remove_member(actor=found.actor, membership=seat, heir=heir)
        return Response(status=204)


class Invitations(GenericAPIView[Invitation]):
    """The open invitations of an organization."""

    serializer_class = InvitationSerializer

    @extend_schema(operation_id="invitations_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List invitations that nobody accepted yet."""
        found = get_access(request, organization_id, Permission.MEMBERS_WRITE)
        page = self.paginate_queryset(selectors.open_invitations(found.organization))
        return self.get_paginated_response(InvitationSerializer(page, many=True).data)

    @idempotent
    @extend_schema(responses={201: InvitationSerializer})
    def post(self, request: Request, organization_id: str) -> Response:
        """Invite a person by mail."""
        found = get_access(request, organization_id, Permission.MEMBERS_WRITE)
        asked = InvitationSerializer.read(request.data)
        invitation, _ = invite_member(actor=found.actor, organization=found.organization, **asked)
        return Response(InvitationSerializer(invitation).data, status=201)


class OneInvitation(GenericAPIView[Invitation]):
    """One open invitation."""

    serializer_class = InvitationSerializer

    def delete(self, request: Request, organization_id: str, invitation_id: str) -> Response:
        """Withdraw an invitation."""
        found = get_access(request, organization_id, Permission.MEMBERS_WRITE)
        invitation = selectors.invitation(found.organization, invitation_id)
        revoke_invitation(actor=found.actor, invitation=invitation)
        return Response(status=204)


class AcceptInvitation(GenericAPIView[Invitation]):
    """Taking the seat that an invitation offers."""

    serializer_class = AcceptanceSerializer

    @idempotent
    @extend_schema(request=AcceptanceSerializer, responses={201: MemberSerializer})
    def post(self, request: Request) -> Response:
        """Accept an invitation that was mailed to the caller."""
        asked = AcceptanceSerializer.read(request.data)
        seat = accept_invitation(user=get_user(request), secret=asked["secret"])
        return Response(MemberSerializer(seat).data, status=201)

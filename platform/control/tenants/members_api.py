"""Members and invitations in the management API."""

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from control.api.idempotency import idempotent
from control.api.serializers import ClosedSerializer
from control.tenants import selectors, services
from control.tenants.access import access, caller
from control.tenants.models import EMAIL_MAX, Invitation, Membership, Role
from control.tenants.permissions import Action

SECRET_MAX = 100
KEYS_TO = OpenApiParameter("keys_to", str, description="Id of the member who takes the API keys.")


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
        found = access(request, organization_id)
        page = self.paginate_queryset(selectors.members(found.organization))
        return self.get_paginated_response(MemberSerializer(page, many=True).data)


class OneMember(GenericAPIView[Membership]):
    """One member of an organization."""

    serializer_class = MemberSerializer

    def get(self, request: Request, organization_id: str, member_id: str) -> Response:
        """Show a member."""
        found = access(request, organization_id)
        return Response(MemberSerializer(selectors.member(found.organization, member_id)).data)

    def patch(self, request: Request, organization_id: str, member_id: str) -> Response:
        """Give a member another role."""
        found = access(request, organization_id)
        seat = selectors.member(found.organization, member_id)
        asked = MemberSerializer.read(request.data)
        seat = services.change_role(actor=found.actor, membership=seat, role=asked["role"])
        return Response(MemberSerializer(seat).data)

    @extend_schema(parameters=[KEYS_TO])
    def delete(self, request: Request, organization_id: str, member_id: str) -> Response:
        """Take a member's seat, or leave. API keys that the member made end, unless `keys_to` names
        a member who takes them."""
        found = access(request, organization_id)
        seat = selectors.member(found.organization, member_id)
        keys_to = request.query_params.get("keys_to")
        heir = selectors.member(found.organization, keys_to) if keys_to else None
        services.remove_member(actor=found.actor, membership=seat, heir=heir)
        return Response(status=204)


class Invitations(GenericAPIView[Invitation]):
    """The open invitations of an organization."""

    serializer_class = InvitationSerializer

    @extend_schema(operation_id="invitations_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List invitations that nobody accepted yet."""
        found = access(request, organization_id, Action.MANAGE_MEMBERS)
        page = self.paginate_queryset(selectors.open_invitations(found.organization))
        return self.get_paginated_response(InvitationSerializer(page, many=True).data)

    @idempotent
    @extend_schema(responses={201: InvitationSerializer})
    def post(self, request: Request, organization_id: str) -> Response:
        """Invite a person by mail."""
        found = access(request, organization_id, Action.MANAGE_MEMBERS)
        asked = InvitationSerializer.read(request.data)
        invitation, _ = services.invite_member(
            actor=found.actor, organization=found.organization, **asked
        )
        return Response(InvitationSerializer(invitation).data, status=201)


class OneInvitation(GenericAPIView[Invitation]):
    """One open invitation."""

    serializer_class = InvitationSerializer

    def delete(self, request: Request, organization_id: str, invitation_id: str) -> Response:
        """Withdraw an invitation."""
        found = access(request, organization_id, Action.MANAGE_MEMBERS)
        invitation = selectors.invitation(found.organization, invitation_id)
        services.revoke_invitation(actor=found.actor, invitation=invitation)
        return Response(status=204)


class AcceptInvitation(GenericAPIView[Invitation]):
    """Taking the seat that an invitation offers."""

    serializer_class = AcceptanceSerializer

    @idempotent
    @extend_schema(request=AcceptanceSerializer, responses={201: MemberSerializer})
    def post(self, request: Request) -> Response:
        """Accept an invitation that was mailed to the caller."""
        asked = AcceptanceSerializer.read(request.data)
        seat = services.accept_invitation(user=caller(request), secret=asked["secret"])
        return Response(MemberSerializer(seat).data, status=201)

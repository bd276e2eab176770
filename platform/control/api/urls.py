"""The addresses of the management API, under /api/v1/."""

from django.urls import path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny

from control.keys import api as keys
from control.limits import api as limits
from control.prices import models_api as models
from control.tenants import api as tenants
from control.tenants import members_api as members
from control.webhooks import api as webhooks

ORGANIZATION = "organizations/<str:organization_id>"
PROJECT = f"{ORGANIZATION}/projects/<str:project_id>"
WEBHOOK = "webhook-endpoints/<str:endpoint_id>"
KEY = f"{ORGANIZATION}/keys/<str:key_id>"

urlpatterns = [
    path("schema", SpectacularAPIView.as_view(permission_classes=[AllowAny]), name="schema"),
    path(
        "docs",
        SpectacularSwaggerSplitView.as_view(url_name="schema", permission_classes=[AllowAny]),
        name="docs",
    ),
    path("organizations", tenants.Organizations.as_view()),
    path(ORGANIZATION, tenants.OneOrganization.as_view()),
    path(f"{ORGANIZATION}/projects", tenants.Projects.as_view()),
    path(PROJECT, tenants.OneProject.as_view()),
    path(f"{PROJECT}/archive", tenants.ArchiveProject.as_view()),
    path(f"{ORGANIZATION}/keys", keys.Keys.as_view()),
    path(KEY, keys.OneKey.as_view()),
    path(f"{KEY}/revoke", keys.RevokeKey.as_view()),
    path(f"{ORGANIZATION}/rate-limits", limits.RateLimits.as_view()),
    path(f"{PROJECT}/rate-limits", limits.ProjectRateLimits.as_view()),
    path(f"{KEY}/rate-limits", limits.KeyRateLimits.as_view()),
    path(f"{ORGANIZATION}/members", members.Members.as_view()),
    path(f"{ORGANIZATION}/members/<str:member_id>", members.OneMember.as_view()),
    path(f"{ORGANIZATION}/invitations", members.Invitations.as_view()),
    path(f"{ORGANIZATION}/invitations/<str:invitation_id>", members.OneInvitation.as_view()),
    path("invitations/accept", members.AcceptInvitation.as_view()),
    path("webhook-endpoints", webhooks.Endpoints.as_view()),
    path(WEBHOOK, webhooks.OneEndpoint.as_view()),
    path(f"{WEBHOOK}/rotate", webhooks.RotateSecret.as_view()),
    path(f"{WEBHOOK}/test", webhooks.SendTest.as_view()),
    path(f"{WEBHOOK}/deliveries", webhooks.Deliveries.as_view()),
    path(f"{WEBHOOK}/deliveries/<str:delivery_id>", webhooks.OneDelivery.as_view()),
    path(f"{WEBHOOK}/deliveries/<str:delivery_id>/redeliver", webhooks.Redeliver.as_view()),
    path(f"{ORGANIZATION}/models", models.Models.as_view()),
    path(f"{ORGANIZATION}/models/<path:model>", models.OneModel.as_view()),
]

"""The URLs of control: console, accounts, admin, management API, and the internal API, which
`control.asgi` hides from the public listener. The settings name the URL modules of the layers
above."""

from allauth.account.views import signup
from django.conf import settings
from django.contrib import admin
from django.db import transaction
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic.base import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny

from control.accounts.views import device_link, end_session, sessions, sign_in, trust_device_view
from control.api_keys import api as keys
from control.audit import api as audit
from control.catalog import api as catalog
from control.catalog import fleet_api as fleets
from control.dataplane import api as dataplane
from control.limits import api as limits
from control.operators.views import operator_invitation
from control.organizations import api as organizations
from control.organizations import operator_api as customers
from control.pricing import api as pricing
from control.telemetry.metrics import metrics
from control.webhooks import api as webhooks

handler404 = "control.error_pages.not_found"
handler429 = "control.error_pages.too_many_requests"
handler500 = "control.error_pages.server_error"

Addresses = list[URLPattern | URLResolver]


def _include_all(modules: list[str]) -> Addresses:
    return [path("", include(module)) for module in modules]


ORGANIZATION = "organizations/<str:organization_id>"
PROJECT = f"{ORGANIZATION}/projects/<str:project_id>"
KEY = f"{ORGANIZATION}/api-keys/<str:key_id>"
WEBHOOK = f"{ORGANIZATION}/webhook-endpoints/<str:endpoint_id>"

DOCS: Addresses = [
    path("schema", SpectacularAPIView.as_view(permission_classes=[AllowAny]), name="schema"),
    path(
        "docs",
        SpectacularSwaggerSplitView.as_view(
            url_name="schema", permission_classes=[AllowAny], metadata_class=None
        ),
        name="docs",
    ),
]
API: Addresses = [
    path("organizations", organizations.OrganizationList.as_view()),
    path(ORGANIZATION, organizations.OrganizationDetail.as_view()),
    path(f"{ORGANIZATION}/deletion-preview", organizations.DeletionPreview.as_view()),
    path(f"{ORGANIZATION}/projects", organizations.ProjectList.as_view()),
    path(PROJECT, organizations.ProjectDetail.as_view()),
    path(f"{PROJECT}/archive", organizations.ArchiveProject.as_view()),
    path(f"{PROJECT}/restore", organizations.RestoreProject.as_view()),
    path(f"{ORGANIZATION}/api-keys", keys.ApiKeyList.as_view()),
    path(KEY, keys.ApiKeyDetail.as_view()),
    path(f"{KEY}/rotate", keys.RotateApiKey.as_view()),
    path(f"{KEY}/revoke-previous-secrets", keys.RevokePreviousSecrets.as_view()),
    path(f"{KEY}/revoke", keys.RevokeApiKey.as_view()),
    path(f"{ORGANIZATION}/rate-limits", limits.RateLimitsDetail.as_view()),
    path(f"{PROJECT}/rate-limits", limits.ProjectRateLimits.as_view()),
    path(f"{KEY}/rate-limits", limits.KeyRateLimits.as_view()),
    path(f"{ORGANIZATION}/members", organizations.MemberList.as_view()),
    path(f"{ORGANIZATION}/members/<str:member_id>", organizations.MemberDetail.as_view()),
    path(f"{ORGANIZATION}/invitations", organizations.InvitationList.as_view()),
    path(
        f"{ORGANIZATION}/invitations/<str:invitation_id>", organizations.InvitationDetail.as_view()
    ),
    path("invitations/accept", organizations.AcceptInvitation.as_view()),
    path(f"{ORGANIZATION}/audit-events", organizations.AuditEventList.as_view()),
    path(f"{ORGANIZATION}/webhook-endpoints", webhooks.WebhookEndpointList.as_view()),
    path(WEBHOOK, webhooks.WebhookEndpointDetail.as_view()),
    path(f"{WEBHOOK}/rotate", webhooks.RotateSecret.as_view()),
    path(f"{WEBHOOK}/test", webhooks.SendTest.as_view()),
    path(f"{WEBHOOK}/deliveries", webhooks.WebhookDeliveryList.as_view()),
    path(f"{WEBHOOK}/deliveries/<str:delivery_id>", webhooks.WebhookDeliveryDetail.as_view()),
    path(f"{WEBHOOK}/deliveries/<str:delivery_id>/resend", webhooks.ResendDelivery.as_view()),
    path(f"{ORGANIZATION}/failed-requests", dataplane.FailedRequestList.as_view()),
    path(
        f"{ORGANIZATION}/failed-requests/<uuid:request_id>",
        dataplane.FailedRequestDetail.as_view(),
    ),
    path(f"{ORGANIZATION}/models", pricing.OfferedModelList.as_view()),
    path(f"{ORGANIZATION}/models/<path:model>", pricing.OfferedModelDetail.as_view()),
]

# The operators' API, for operator tokens only.
ADMIN_API: Addresses = [
    path("models", catalog.AdminModelList.as_view()),
    path("models/<str:model_id>", catalog.AdminModelDetail.as_view()),
    path("variants", catalog.AdminVariantList.as_view()),
    path("variants/<str:variant_id>", catalog.AdminVariantDetail.as_view()),
    path("variants/<str:variant_id>/publish", catalog.PublishVariant.as_view()),
    path("variants/<str:variant_id>/quality-reports", catalog.RecordQuality.as_view()),
    path("variants/<str:variant_id>/withdraw", catalog.WithdrawVariant.as_view()),
    path("variants/<str:variant_id>/archive", catalog.ArchiveVariant.as_view()),
    path("deployments", catalog.AdminDeploymentList.as_view()),
    path("deployments/<str:deployment_id>", catalog.AdminDeploymentDetail.as_view()),
    path("deployments/<str:deployment_id>/end", catalog.EndDeployment.as_view()),
    path("fleets", fleets.FleetList.as_view()),
    path("fleets/<str:fleet_id>", fleets.FleetDetail.as_view()),
    path("price-books", pricing.PriceBookList.as_view()),
    path("price-books/<str:book_id>", pricing.PriceBookDetail.as_view()),
    path("price-books/<str:book_id>/prices", pricing.PriceBookPriceList.as_view()),
    path("price-books/<str:book_id>/prices/<str:price_id>", pricing.PriceBookPriceDetail.as_view()),
    path("price-books/<str:book_id>/publish", pricing.PublishPriceBook.as_view()),
    path("price-books/<str:book_id>/cancel", pricing.CancelPriceBook.as_view()),
    path("organizations", customers.AdminOrganizationList.as_view()),
    path(ORGANIZATION, customers.AdminOrganizationDetail.as_view()),
    path(f"{ORGANIZATION}/suspend", customers.SuspendOrganization.as_view()),
    path(f"{ORGANIZATION}/resume", customers.ResumeOrganization.as_view()),
    path(f"{ORGANIZATION}/terms", customers.OrganizationTerms.as_view()),
    path(f"{ORGANIZATION}/api-keys", keys.AdminApiKeyList.as_view()),
    path(f"{ORGANIZATION}/rate-limits", limits.AdminRateLimits.as_view()),
    path("usage-tiers", limits.UsageTierList.as_view()),
    path("usage-tiers/<str:tier_id>", limits.UsageTierDetail.as_view()),
    path("usage-tiers/<str:tier_id>/models/<str:model_id>", limits.UsageTierModel.as_view()),
    path("audit-events", audit.AdminAuditEventList.as_view()),
]

urlpatterns: Addresses = [
    path("internal/v1/", include(_include_all(settings.INTERNAL_URLS))),
    path("metrics", metrics),
    # A sign-up and its email are one transaction: no account exists without its email.
    path("accounts/signup/", transaction.atomic(signup), name="account_signup"),
    path("accounts/login/", sign_in, name="account_login"),
    path("accounts/login/trust-device/", device_link, name="device_link"),
    path("accounts/login/trust-device/<str:token>/", trust_device_view, name="known_device"),
    path(
        "accounts/2fa/webauthn/",
        RedirectView.as_view(pattern_name="mfa_index"),
        name="mfa_list_webauthn",
    ),
    path("accounts/sessions/", sessions, name="usersessions_list"),
    path("accounts/sessions/<int:session_id>/end/", end_session, name="end_session"),
    path("accounts/", include("allauth.urls")),
    path("", include("control.sso.views")),
    path("admin/", admin.site.urls),
    path("operators/invitations/<str:secret>", operator_invitation, name="operator_invitation"),
    path("api/v1/", include([*DOCS, *API])),
    path("api/v1/admin/", include(ADMIN_API)),
    *(path("api/v1/", include(module)) for module in settings.API_URLS),
    *_include_all(settings.PUBLIC_URLS),
    path("", include(settings.CONSOLE_URLS)),
]

"""The console's URLs. They begin with an organization's id, so that every page is a permalink."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from django.urls import URLPattern, path, register_converter
from django.urls.converters import StringConverter

from web.console import (
    api_keys,
    audit_log,
    invoices,
    model_pages,
    organizations,
    overview,
    personal_data,
    projects,
    rate_limits,
    requests,
    settings,
    spending_limits,
    sso,
    team,
    theme,
    webhooks,
)
from web.console.billing import profile
from web.console.billing import views as billing
from web.console.playground import views as playground
from web.console.usage import views as usage


class OrganizationConverter(StringConverter):
    """An organization's id, so that no other first path segment is taken for one."""

    regex = "org_[0-9A-Za-z]{1,60}"


register_converter(OrganizationConverter, "organization")


def _page(route: str, view: Callable[..., Any], name: str) -> URLPattern:
    return path(f"<organization:organization_id>/{route}", view, name=name)


def _verbs(module: ModuleType, prefix: str, name: str, *verbs: str) -> list[URLPattern]:
    """Return the URLs of the views `{name}_{verb}`: the prefix, then the verb with hyphens."""
    return [
        _page(
            f"{prefix}/{verb.replace('_', '-')}",
            getattr(module, f"{name}_{verb}"),
            f"{name}_{verb}",
        )
        for verb in verbs
    ]


API_KEY = "api-keys/<str:key_id>"
BUDGET = "spending-limits/<str:limit_id>"
METHOD = "billing/methods/<str:method_id>"
PROJECT = "projects/<str:project_id>"
INVITATION = "team/invitations/<str:invitation_id>"
MEMBER = "team/<str:member_id>"
DOMAIN = "team/sso/domains/<str:domain_id>"
ENDPOINT = "webhooks/<str:endpoint_id>"
DELIVERY = f"{ENDPOINT}/<str:delivery_id>"

OF_ORGANIZATION = [
    _page("overview", overview.overview, "overview"),
    _page("playground", playground.playground, "playground"),
    _page("playground/stream", playground.playground_stream, "playground_stream"),
    _page("models", model_pages.models, "models"),
    _page("api-keys", api_keys.keys, "keys"),
    _page("api-keys/new", api_keys.key_new, "key_new"),
    _page(API_KEY, api_keys.key, "key"),
    *_verbs(api_keys, API_KEY, "key", "secret", "edit", "rotate", "end_old", "revoke"),
    _page("usage", usage.usage, "usage"),
    _page("usage.csv", usage.usage_csv, "usage_csv"),
    _page("requests", requests.requests, "requests"),
    _page("requests.csv", requests.requests_csv, "requests_csv"),
    _page("requests.jsonl", requests.requests_jsonl, "requests_jsonl"),
    _page("requests/<uuid:event_id>", requests.receipt, "receipt"),
    _page("billing", billing.billing, "billing"),
    _page("billing/profile", profile.billing_profile_page, "billing_profile"),
    _page("spending-limits", spending_limits.limits, "limits"),
    _page("spending-limits/alerts", spending_limits.alerts, "limit_alerts"),
    _page(BUDGET, spending_limits.limit, "limit"),
    *_verbs(spending_limits, BUDGET, "limit", "remove"),
    *_verbs(billing, "billing", "billing", "top_up", "payments", "automatic", "code", "saved"),
    *_verbs(billing, "billing", "billing", "request_invoice"),
    _page("billing/payments/<str:payment_id>", billing.billing_payment, "billing_payment"),
    _page("billing/methods/new", billing.billing_method_new, "billing_method_new"),
    *_verbs(billing, METHOD, "billing_method", "default", "remove"),
    _page("invoices", invoices.invoices, "invoices"),
    _page("invoices/running.pdf", invoices.running_pdf, "running_pdf"),
    _page("invoices/<str:invoice_id>.pdf", invoices.invoice_file, "invoice_pdf"),
    _page("invoices/<str:invoice_id>", invoices.invoice, "invoice"),
    _page("invoices/<str:invoice_id>/pay", invoices.invoice_pay, "invoice_pay"),
    _page("credit-notes/<str:note_id>.pdf", invoices.credit_note_file, "credit_note_pdf"),
    _page("rate-limits", rate_limits.rates, "rates"),
    _page("settings", settings.settings, "settings"),
    *_verbs(settings, "settings", "settings", "rename", "idempotency", "delete"),
    _page("projects/new", projects.project_new, "project_new"),
    _page(PROJECT, projects.project, "project"),
    *_verbs(projects, PROJECT, "project", "rename", "origins", "archive", "restore"),
    _page("team", team.team, "team"),
    _page("team/invite", team.team_invite, "team_invite"),
    *_verbs(team, INVITATION, "invitation", "renew", "withdraw"),
    _page("team/sso", sso.sso, "sso"),
    *_verbs(sso, "team/sso", "sso", "oidc", "saml", "remove", "roles", "enforce"),
    _page("team/sso/domain/add", sso.sso_domain_add, "sso_domain_add"),
    *_verbs(sso, DOMAIN, "sso_domain", "verify", "remove"),
    _page("team/sso/people/<str:member_id>/forget", sso.sso_forget, "sso_forget"),
    *_verbs(sso, "team/scim", "scim", "token", "end", "heir"),
    _page(MEMBER, team.member, "member"),
    *_verbs(team, MEMBER, "member", "role", "remove"),
    _page("audit-log", audit_log.audit, "audit"),
    _page("audit-log.csv", audit_log.audit_csv, "audit_csv"),
    _page("webhooks", webhooks.webhooks, "webhooks"),
    _page("webhooks/new", webhooks.webhook_new, "webhook_new"),
    _page(ENDPOINT, webhooks.webhook, "webhook"),
    *_verbs(webhooks, ENDPOINT, "webhook", "update", "switch", "rotate", "test", "delete"),
    _page(DELIVERY, webhooks.webhook_delivery, "webhook_delivery"),
    _page(f"{DELIVERY}/resend", webhooks.webhook_resend, "webhook_resend"),
]

app_name = "console"
urlpatterns = [
    path("", organizations.home, name="home"),
    path("invitations/<str:secret>", organizations.invitation, name="invitation"),
    path("organizations/new", organizations.organization_new, name="organization_new"),
    path("theme", theme.choose_theme, name="theme"),
    path("accounts/personal-data", personal_data.personal_data, name="personal_data"),
    path(
        "accounts/personal-data/export",
        personal_data.personal_data_export,
        name="personal_data_export",
    ),
    path(
        "accounts/personal-data/erase",
        personal_data.personal_data_erase,
        name="personal_data_erase",
    ),
    path(
        "accounts/personal-data/<str:request_id>",
        personal_data.personal_data_download,
        name="personal_data_download",
    ),
    *OF_ORGANIZATION,
]

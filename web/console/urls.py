"""The console's addresses: an organization's id first, so that every page is a permalink."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from web.console import theme
from web.console.views import (
    audit,
    billing,
    home,
    invitations,
    invoices,
    keys,
    limits,
    models,
    organizations,
    overview,
    personal_data,
    playground,
    profile,
    projects,
    rates,
    requests,
    settings,
    sso,
    team,
    usage,
    webhooks,
)


class OrganizationConverter(StringConverter):
    """An organization's id, so that no other first part of a path is taken for one."""

    regex = "org_[0-9A-Za-z]{1,60}"


register_converter(OrganizationConverter, "organization")

app_name = "console"
urlpatterns = [
    path("", home.home, name="home"),
    path("invitations/<str:secret>", invitations.invitation, name="invitation"),
    path("organizations/new", organizations.organization_new, name="organization_new"),
    path("theme", theme.choose_theme, name="theme"),
    path("accounts/data", personal_data.personal_data, name="personal_data"),
    path("accounts/data/copy", personal_data.personal_data_copy, name="personal_data_copy"),
    path("accounts/data/erase", personal_data.personal_data_erase, name="personal_data_erase"),
    path(
        "accounts/data/<str:errand_id>",
        personal_data.personal_data_download,
        name="personal_data_download",
    ),
    path("<organization:organization_id>/overview", overview.overview, name="overview"),
    path("<organization:organization_id>/playground", playground.playground, name="playground"),
    path(
        "<organization:organization_id>/playground/stream",
        playground.playground_stream,
        name="playground_stream",
    ),
    path("<organization:organization_id>/models", models.models, name="models"),
    path("<organization:organization_id>/keys", keys.keys, name="keys"),
    path("<organization:organization_id>/keys/new", keys.key_new, name="key_new"),
    path("<organization:organization_id>/keys/<str:key_id>", keys.key, name="key"),
    *(
        path(
            f"<organization:organization_id>/keys/<str:key_id>/{verb.replace('_', '-')}",
            getattr(keys, f"key_{verb}"),
            name=f"key_{verb}",
        )
        for verb in ("secret", "edit", "rotate", "end_old", "revoke")
    ),
    path(
        "<organization:organization_id>/billing/profile",
        profile.billing_profile_page,
        name="billing_profile",
    ),
    path("<organization:organization_id>/billing/limits", limits.limits, name="limits"),
    path("<organization:organization_id>/billing/alerts", limits.alerts, name="limit_alerts"),
    path(
        "<organization:organization_id>/billing/limits/<str:budget_id>", limits.limit, name="limit"
    ),
    path(
        "<organization:organization_id>/billing/limits/<str:budget_id>/remove",
        limits.limit_remove,
        name="limit_remove",
    ),
    path("<organization:organization_id>/usage", usage.usage, name="usage"),
    path("<organization:organization_id>/usage.csv", usage.usage_csv, name="usage_csv"),
    path("<organization:organization_id>/invoices", invoices.invoices, name="invoices"),
    path(
        "<organization:organization_id>/invoices/running.pdf",
        invoices.running_pdf,
        name="running_pdf",
    ),
    path(
        "<organization:organization_id>/invoices/<str:invoice_id>.pdf",
        invoices.invoice_file,
        name="invoice_pdf",
    ),
    path(
        "<organization:organization_id>/invoices/<str:invoice_id>",
        invoices.invoice,
        name="invoice",
    ),
    path(
        "<organization:organization_id>/invoices/<str:invoice_id>/pay",
        invoices.invoice_pay,
        name="invoice_pay",
    ),
    path(
        "<organization:organization_id>/credit-notes/<str:note_id>.pdf",
        invoices.credit_note_file,
        name="credit_note_pdf",
    ),
    path("<organization:organization_id>/requests", requests.requests, name="requests"),
    path("<organization:organization_id>/requests.csv", requests.requests_csv, name="requests_csv"),
    path(
        "<organization:organization_id>/requests.jsonl",
        requests.requests_jsonl,
        name="requests_jsonl",
    ),
    path(
        "<organization:organization_id>/requests/<uuid:event_id>",
        requests.receipt,
        name="receipt",
    ),
    path("<organization:organization_id>/rate-limits", rates.rates, name="rates"),
    path("<organization:organization_id>/settings", settings.settings, name="settings"),
    *(
        path(
            f"<organization:organization_id>/settings/{verb}",
            getattr(settings, f"settings_{verb}"),
            name=f"settings_{verb}",
        )
        for verb in ("rename", "idempotency", "delete")
    ),
    path("<organization:organization_id>/projects/new", projects.project_new, name="project_new"),
    path(
        "<organization:organization_id>/projects/<str:project_id>", projects.project, name="project"
    ),
    *(
        path(
            f"<organization:organization_id>/projects/<str:project_id>/{verb}",
            getattr(projects, f"project_{verb}"),
            name=f"project_{verb}",
        )
        for verb in ("rename", "origins", "archive", "restore")
    ),
    path("<organization:organization_id>/team", team.team, name="team"),
    path("<organization:organization_id>/team/invite", team.team_invite, name="team_invite"),
    *(
        path(
            f"<organization:organization_id>/team/invitations/<str:invitation_id>/{verb}",
            getattr(team, f"invitation_{verb}"),
            name=f"invitation_{verb}",
        )
        for verb in ("renew", "withdraw")
    ),
    path("<organization:organization_id>/team/sso", sso.sso, name="sso"),
    *(
        path(
            f"<organization:organization_id>/team/sso/{verb.replace('_', '/')}",
            getattr(sso, f"sso_{verb}"),
            name=f"sso_{verb}",
        )
        for verb in ("oidc", "saml", "remove", "domain_add", "roles", "enforce")
    ),
    *(
        path(
            f"<organization:organization_id>/team/sso/domains/<str:domain_id>/{verb}",
            getattr(sso, f"sso_domain_{verb}"),
            name=f"sso_domain_{verb}",
        )
        for verb in ("verify", "remove")
    ),
    path(
        "<organization:organization_id>/team/sso/people/<str:member_id>/forget",
        sso.sso_forget,
        name="sso_forget",
    ),
    *(
        path(
            f"<organization:organization_id>/team/scim/{verb}",
            getattr(sso, f"scim_{verb}"),
            name=f"scim_{verb}",
        )
        for verb in ("token", "end", "heir")
    ),
    path("<organization:organization_id>/team/<str:member_id>", team.member, name="member"),
    *(
        path(
            f"<organization:organization_id>/team/<str:member_id>/{verb}",
            getattr(team, f"member_{verb}"),
            name=f"member_{verb}",
        )
        for verb in ("role", "remove")
    ),
    path("<organization:organization_id>/audit", audit.audit, name="audit"),
    path("<organization:organization_id>/audit.csv", audit.audit_csv, name="audit_csv"),
    path("<organization:organization_id>/webhooks", webhooks.webhooks, name="webhooks"),
    path("<organization:organization_id>/webhooks/new", webhooks.webhook_new, name="webhook_new"),
    path(
        "<organization:organization_id>/webhooks/<str:endpoint_id>",
        webhooks.webhook,
        name="webhook",
    ),
    *(
        path(
            f"<organization:organization_id>/webhooks/<str:endpoint_id>/{verb}",
            getattr(webhooks, f"webhook_{verb}"),
            name=f"webhook_{verb}",
        )
        for verb in ("update", "switch", "rotate", "test", "delete")
    ),
    path(
        "<organization:organization_id>/webhooks/<str:endpoint_id>/<str:delivery_id>",
        webhooks.webhook_delivery,
        name="webhook_delivery",
    ),
    path(
        "<organization:organization_id>/webhooks/<str:endpoint_id>/<str:delivery_id>/redeliver",
        webhooks.webhook_redeliver,
        name="webhook_redeliver",
    ),
    path(
        "<organization:organization_id>/billing",
        billing.billing,
        name="billing",
    ),
    path(
        "<organization:organization_id>/billing/top-up",
        billing.billing_top_up,
        name="billing_top_up",
    ),
    path(
        "<organization:organization_id>/billing/payments",
        billing.billing_payments,
        name="billing_payments",
    ),
    path(
        "<organization:organization_id>/billing/payments/<str:payment_id>",
        billing.billing_payment,
        name="billing_payment",
    ),
    path(
        "<organization:organization_id>/billing/automatic",
        billing.billing_automatic,
        name="billing_automatic",
    ),
    path(
        "<organization:organization_id>/billing/code",
        billing.billing_code,
        name="billing_code",
    ),
    path(
        "<organization:organization_id>/billing/saved",
        billing.billing_saved,
        name="billing_saved",
    ),
    path(
        "<organization:organization_id>/billing/methods/new",
        billing.billing_method_new,
        name="billing_method_new",
    ),
    path(
        "<organization:organization_id>/billing/methods/<str:method_id>/default",
        billing.billing_method_default,
        name="billing_method_default",
    ),
    path(
        "<organization:organization_id>/billing/methods/<str:method_id>/remove",
        billing.billing_method_remove,
        name="billing_method_remove",
    ),
]

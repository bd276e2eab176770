"""The admin's first page and its navigation."""

from functools import partial
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from control.api_keys import selectors as keys
from control.catalog.fleet_status import fleet_status
from control.feed import selectors as published
from control.organizations import selectors as tenants

PAGES = (
    (
        {"title": _("Alarms"), "icon": "notifications"},
        "alarms.view_alarmcount",
        "admin:alarms_overview",
    ),
    (
        {"title": _("Outbox"), "icon": "outbox"},
        "outbox.view_outboxmessage",
        "admin:outbox_standing",
    ),
    (
        {"title": _("Mailbox"), "icon": "mail"},
        "mail.view_storedemail",
        "admin:mail_storedemail_changelist",
    ),
    (
        {"title": _("Close of the month"), "icon": "event_available"},
        "invoicing.view_close",
        "admin:invoicing_month",
    ),
    (
        {"title": _("Receivables"), "icon": "hourglass"},
        "ledger.view_account",
        "admin:cockpit_owed",
    ),
    (
        {"title": _("Trial balance"), "icon": "account_balance"},
        "ledger.view_account",
        "admin:cockpit_trial_balance",
    ),
    (
        {"title": _("Journal"), "icon": "receipt_long"},
        "ledger.view_account",
        "admin:cockpit_journal",
    ),
    (
        {"title": _("Ledger"), "icon": "menu_book"},
        "ledger.view_account",
        "admin:cockpit_statement",
    ),
    (
        {"title": _("Revenue"), "icon": "bar_chart"},
        "ledger.view_account",
        "admin:cockpit_revenue",
    ),
    (
        {"title": _("Deferred credit"), "icon": "savings"},
        "ledger.view_account",
        "admin:cockpit_deferred",
    ),
    (
        {"title": _("Payments"), "icon": "payments"},
        "payments.view_stripepayment",
        "admin:payments_standing",
    ),
    (
        {"title": _("Collection"), "icon": "hourglass_bottom"},
        "collection.view_case",
        "admin:collection_case_changelist",
    ),
    (
        {"title": _("Margin"), "icon": "monitoring"},
        "economics.view_enginelife",
        "admin:economics_margin",
    ),
    (
        {"title": _("Reconciliation"), "icon": "balance"},
        "economics.view_enginelife",
        "admin:economics_reconciliation",
    ),
)
"""Pages by name, since control imports no layer above it."""


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the context of the admin's first page with some statistics."""
    fleet = fleet_status()
    ready_count = sum(each.state == "ready" for each in fleet.replicas)
    replicas = gettext("%(count)s ready") % {"count": ready_count}
    if fleet.is_down:
        replicas = gettext("the fleet does not respond")
    figures = [
        (
            gettext("Organizations"),
            tenants.organizations().count(),
            "admin:organizations_organization_changelist",
        ),
        (
            gettext("Active API keys"),
            keys.active_key_count(timezone.now()),
            "admin:api_keys_apikey_changelist",
        ),
        (gettext("Replicas"), replicas, "admin:catalog_deployment_changelist"),
        (
            gettext("Feed version"),
            published.last_version(),
            "admin:feed_publishedchange_changelist",
        ),
    ]
    shown = [(title, figure, reverse(page)) for title, figure, page in figures]
    return {**context, "figures": shown}


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the admin's navigation: the main pages, then the models of every app."""
    pages = [
        {**page, "permission": partial(_may, permission), "link": reverse(name)}
        for page, permission, name in PAGES
    ]
    apps = [
        {
            "title": app["name"],
            "items": [
                {"title": model["name"], "link": model["admin_url"]}
                for model in app["models"]
                if model["admin_url"]
            ],
        }
        for app in admin.site.get_app_list(request)
    ]
    return [{"title": _("Billing"), "items": pages}, *apps]


def _may(permission: str, request: HttpRequest) -> bool:
    return request.user.has_perm(permission)

"""The console's addresses: an organization's id first, so that every page is a permalink."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from web.console import theme
from web.console.views import (
    home,
    invitations,
    keys,
    models,
    overview,
    playground,
    requests,
    usage,
)


class OrganizationConverter(StringConverter):
    """An organization's id, so that no other first part of a path is taken for one."""

    regex = "org_[0-9A-Za-z]{1,60}"


register_converter(OrganizationConverter, "organization")

app_name = "console"
urlpatterns = [
    path("", home.home, name="home"),
    path("invitations/<str:secret>", invitations.invitation, name="invitation"),
    path("theme", theme.choose_theme, name="theme"),
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
    path(
        "<organization:organization_id>/keys/<str:key_id>/rename",
        keys.key_rename,
        name="key_rename",
    ),
    path(
        "<organization:organization_id>/keys/<str:key_id>/revoke",
        keys.key_revoke,
        name="key_revoke",
    ),
    path("<organization:organization_id>/usage", usage.usage, name="usage"),
    path("<organization:organization_id>/usage.csv", usage.usage_csv, name="usage_csv"),
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
]

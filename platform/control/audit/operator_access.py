"""Audits operators' access to tenants: an admin page that shows the data of one organization or one
person records an audit event with the operator and the row. Repeated views within a minute are one
event."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.apps import apps
from django.conf import settings
from django.contrib.admin.utils import unquote
from django.core.cache import cache
from django.db import transaction
from django.db.models import Model
from django.http import HttpRequest, QueryDict
from django.urls import ResolverMatch

from control.admin.base import operator
from control.admin.site import apps_with_rows, page_shown
from control.audit.models import ID_MAX
from control.audit.services import record_once_within
from control.permissions import Actor

PAUSE = timedelta(minutes=1)
ORGANIZATION = "organizations.Organization"
ORGANIZATION_ID = re.compile(r"org_[0-9A-Za-z]{24}")


@dataclass(frozen=True, slots=True)
class OperatorView:
    """The row that a page shows, of an organization, or of a person where `organization_id` is
    empty."""

    target_kind: str
    target_id: str
    organization_id: str
    model: str = ORGANIZATION
    """The label of the row's model."""


def listen() -> None:
    """Record each page that the admin shows."""
    page_shown.connect(record_operator_views, dispatch_uid="control.audit.operator_access")


def record_operator_views(sender: object, request: HttpRequest, **_: object) -> None:
    """Record the tenants' rows that an operator was shown."""
    page = request.resolver_match
    if page is None:
        return
    for view in [*_views_in_url(page), *views_in_query(request.GET)]:
        record_operator_view(operator(request), view, page=page.url_name or "")


def record_operator_view(actor: Actor, view: OperatorView, *, page: str) -> None:
    """Record that an operator was shown a tenant's row on a page of the admin, or by the
    operators' API."""
    cache_key = f"look:{actor.id}:{view.target_kind}:{view.target_id}"
    if cache.get(cache_key):  # so that a repeated view costs no query
        return
    record_once_within(
        PAUSE,
        actor=actor,
        action="organization.viewed_by_operator"
        if view.organization_id
        else "user.viewed_by_operator",
        target_kind=view.target_kind,
        target_id=view.target_id[:ID_MAX],
        target_name=_name_of(view),
        organization_id=view.organization_id,
        details={"page": page},
    )
    transaction.on_commit(lambda: cache.set(cache_key, True, timeout=PAUSE.seconds))


def record_organization_view(actor: Actor, organization_id: str, *, page: str) -> None:
    """Record that the operators' API showed an organization's data; `page` is the operation."""
    view = OperatorView("organization", organization_id, organization_id)
    record_operator_view(actor, view, page=page)


def _name_of(view: OperatorView) -> str:
    """Return what people call the row; its id where it has no name."""
    row = apps.get_model(view.model)._base_manager.filter(pk=view.target_id).first()
    return view.target_id if row is None else str(row)


def _views_in_url(page: ResolverMatch) -> Iterator[OperatorView]:
    """Yield the tenant's row in a URL, such as `admin/api_keys/apikey/<id>/change/`."""
    ids = [str(value) for name, value in page.kwargs.items() if name.endswith("_id")]
    app_and_model = page.route.split("/")[1:3]
    if ids and tuple(app_and_model) in apps_with_rows():
        yield from _views_of_row(
            apps.get_model(app_and_model[0], app_and_model[1]), unquote(ids[0])
        )


def views_in_query(query: QueryDict) -> Iterator[OperatorView]:
    """Yield the organizations that a list was filtered by."""
    for value in {value for _, values in query.lists() for value in values}:
        if ORGANIZATION_ID.fullmatch(value):
            yield OperatorView("organization", value, value)


def _views_of_row(model: type[Model], row_id: str) -> Iterator[OperatorView]:
    kind, label = str(model._meta.model_name), model._meta.label
    if label == ORGANIZATION:
        yield OperatorView(kind, row_id, row_id, label)
    elif label == settings.AUTH_USER_MODEL:
        yield OperatorView(kind, row_id, "", label)
    elif "organization_id" in {field.attname for field in model._meta.concrete_fields}:
        rows = model._base_manager.filter(pk=row_id)
        if organization_id := rows.values_list("organization_id", flat=True).first():
            yield OperatorView(kind, row_id, str(organization_id), label)

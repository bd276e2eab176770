"""Operators' looks into tenants: a page of the admin that shows what one organization or one person
has is a deed, which says who looked at what of whose. A minute of the same is one look."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.apps import apps
from django.conf import settings
from django.contrib.admin.utils import unquote
from django.core.cache import cache
from django.db.models import Model
from django.http import HttpRequest, QueryDict
from django.http.response import HttpResponseBase
from django.urls import ResolverMatch

from control.admin.base import operator
from control.admin.site import apps_with_rows, page_shown
from control.audit.models import ID_MAX
from control.audit.services import record_once_within

PAUSE = timedelta(minutes=1)
ORGANIZATION = "organizations.Organization"
ORGANIZATION_ID = re.compile(r"org_[0-9A-Za-z]{24}")


@dataclass(frozen=True, slots=True)
class OperatorView:
    """What a page shows of an organization; of a person where `organization_id` is empty."""

    target_kind: str
    target_id: str
    organization_id: str


def listen() -> None:
    """Hear of each page of the admin."""
    page_shown.connect(record_operator_views, dispatch_uid="control.audit.operator_access")


def record_operator_views(
    sender: object, request: HttpRequest, response: HttpResponseBase, **_: object
) -> None:
    """Record what an operator was shown of tenants. A page that refused showed nothing."""
    page = request.resolver_match
    if request.method != "GET" or response.status_code != 200 or page is None:
        return
    for sight in [*_of_address(page), *_of_question(request.GET)]:
        actor = operator(request)
        known = f"look:{actor.id}:{sight.target_kind}:{sight.target_id}"
        if cache.get(known):  # so that a page looked at again asks nothing more of the database
            continue
        record_once_within(
            PAUSE,
            actor=actor,
            action="organization.look" if sight.organization_id else "user.look",
            target_kind=sight.target_kind,
            target_id=sight.target_id[:ID_MAX],
            organization_id=sight.organization_id,
            details={"page": page.url_name or ""},
        )
        cache.set(known, True, timeout=PAUSE.seconds)


def _of_address(page: ResolverMatch) -> Iterator[OperatorView]:
    """Yield the tenant's row that an address names, such as
    `admin/api_keys/apikey/<id>/change/`."""
    ids = [str(value) for name, value in page.kwargs.items() if name.endswith("_id")]
    place = page.route.split("/")[1:3]
    if ids and tuple(place) in apps_with_rows():
        yield from _of_row(apps.get_model(place[0], place[1]), unquote(ids[0]))


def _of_question(asked: QueryDict) -> Iterator[OperatorView]:
    """Yield the organizations that a list was narrowed to."""
    for value in {value for _, values in asked.lists() for value in values}:
        if ORGANIZATION_ID.fullmatch(value):
            yield OperatorView("organization", value, value)


def _of_row(model: type[Model], row_id: str) -> Iterator[OperatorView]:
    kind, label = str(model._meta.model_name), model._meta.label
    if label == ORGANIZATION:
        yield OperatorView(kind, row_id, row_id)
    elif label == settings.AUTH_USER_MODEL:
        yield OperatorView(kind, row_id, "")
    elif "organization_id" in {field.attname for field in model._meta.concrete_fields}:
        rows = model._base_manager.filter(pk=row_id)
        if whose := rows.values_list("organization_id", flat=True).first():
            yield OperatorView(kind, row_id, str(whose))

"""SCIM 2.0 endpoints: users, groups and their descriptions."""

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any

from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from pydantic import ValidationError
from scim2_models import (
    AuthenticationScheme,
    Bulk,
    ChangePassword,
    Context,
    Error,
    ETag,
    Filter,
    Group,
    ListResponse,
    Patch,
    Resource,
    ResourceType,
    ResponseParameters,
    Schema,
    SCIMException,
    SearchRequest,
    ServiceProviderConfig,
    Sort,
)

from control.errors import ServiceError
from control.organizations import selectors as tenants
from control.organizations.models import Organization
from control.sso import scim_members, scim_requests, selectors
from control.sso.models import ScimGroup, ScimToken, ScimUser, token_digest
from control.sso.scim_resources import (
    MODELS,
    User,
    bare,
    group_profile_of,
    group_resource,
    profile_of,
    user_resource,
)

CONTENT_TYPE = "application/scim+json"
START_MAX = 10**9
USED_EVERY = timedelta(minutes=1)
USER_COLUMNS = {
    "username": "user_name__iexact", "externalid": "external_id", "id": "id",
    "emails.value": "user__email__iexact",
}  # fmt: skip
GROUP_COLUMNS = {"displayname": "display_name", "externalid": "external_id", "id": "id"}
View = Callable[..., HttpResponse]
RESULTS_MAX = 200
PROVIDER_CONFIG = ServiceProviderConfig(
    patch=Patch(supported=True),
    bulk=Bulk(supported=False, max_operations=0, max_payload_size=0),
    filter=Filter(supported=True, max_results=RESULTS_MAX),
    change_password=ChangePassword(supported=False),
    sort=Sort(supported=False),
    etag=ETag(supported=False),
    authentication_schemes=[
        AuthenticationScheme(
            type="oauthbearertoken",
            name="Bearer token",
            description="The token that an owner made on the SSO page of the console.",
            primary=True,
        )
    ],
)


def scim(*methods: str) -> Callable[[View], View]:
    """Return a decorator that makes a SCIM endpoint of a view with a request and an organization:
    it authenticates the token, checks the method and renders errors."""

    def decorate(view: View) -> View:
        @csrf_exempt
        @never_cache
        @wraps(view)
        def routed(request: HttpRequest, **arguments: str) -> HttpResponse:
            token = _authenticated_token(request)
            if token is None:
                response = _error(401, "The bearer token opens nothing.")
                response.headers["WWW-Authenticate"] = 'Bearer realm="scim"'
                return response
            if request.method not in methods:
                return _error(405, f"Wanted one of {', '.join(methods)}.")
            try:
                return _run_serialized(view, request, token.organization, arguments)
            except SCIMException as error:
                return _error(error.status, error.detail, error.scim_type)
            except ValidationError as error:
                return _validation_error(error)
            except ServiceError as refused:
                return _service_error(refused)

        return routed

    return decorate


def _run_serialized(
    view: View, request: HttpRequest, organization: Organization, arguments: dict[str, str]
) -> HttpResponse:
    """Call the view. Requests that change an organization run one after the other, so that none
    overwrites the changes of another."""
    if request.method == "GET":
        return view(request, organization, **arguments)
    with transaction.atomic():
        return view(request, tenants.locked_organization(organization.id), **arguments)


@scim("GET")
def provider_config(request: HttpRequest, organization: Organization) -> HttpResponse:
    """Return the supported features."""
    return _response(PROVIDER_CONFIG)


@scim("GET")
def resource_types(request: HttpRequest, organization: Organization) -> HttpResponse:
    """List the resource types."""
    return _unfiltered(
        request, ResourceType, [ResourceType.from_resource(model) for model in _models()]
    )


@scim("GET")
def resource_type(request: HttpRequest, organization: Organization, name: str) -> HttpResponse:
    """Return one resource type."""
    types = [each for each in map(ResourceType.from_resource, _models()) if each.id == name]
    return _response(types[0]) if types else _error(404, "There is no such resource type.")


@scim("GET")
def schemas(request: HttpRequest, organization: Organization) -> HttpResponse:
    """List the schemas of the resource types."""
    return _unfiltered(request, Schema, [model.to_schema() for model in _models()])


@scim("GET")
def schema(request: HttpRequest, organization: Organization, name: str) -> HttpResponse:
    """Return one schema."""
    named = [model.to_schema() for model in _models() if str(model.__schema__) == name]
    return _response(named[0]) if named else _error(404, "There is no such schema.")


@scim("GET", "POST")
def users(request: HttpRequest, organization: Organization) -> HttpResponse:
    """List the users, or add one."""
    if request.method == "GET":
        rows = selectors.scim_users(organization).filter(
            **scim_requests.equality(request, USER_COLUMNS)
        )
        return _page(request, User, rows, user_resource)
    sent = scim_requests.resource(request, User, Context.RESOURCE_CREATION_REQUEST)
    row = scim_members.add_user(organization=organization, profile=profile_of(sent))
    return _created(request, user_resource(selectors.scim_user(organization, row.id)))


@scim("GET", "PUT", "PATCH", "DELETE")
def user(request: HttpRequest, organization: Organization, user_id: str) -> HttpResponse:
    """Retrieve, replace, change or remove a user."""
    row = selectors.scim_user(organization, user_id)
    current = user_resource(row)
    if request.method == "GET":
        return _response(current, request)
    if request.method == "DELETE":
        scim_members.remove_user(organization=organization, scim_user_id=user_id)
        return HttpResponse(status=204)
    if request.method == "PUT":
        current = scim_requests.resource(request, User, Context.RESOURCE_REPLACEMENT_REQUEST)
    else:
        scim_requests.patched(request, current)
    scim_members.change_user(
        organization=organization,
        scim_user_id=user_id,
        profile=profile_of(current, is_active=row.is_active),
    )
    return _response(user_resource(selectors.scim_user(organization, user_id)), request)


@scim("GET", "POST")
def groups(request: HttpRequest, organization: Organization) -> HttpResponse:
    """List the groups, or add one."""
    if request.method == "GET":
        rows = selectors.scim_groups(organization).filter(
            **scim_requests.equality(request, GROUP_COLUMNS)
        )
        return _page(request, Group, rows, group_resource)
    sent = scim_requests.resource(request, Group, Context.RESOURCE_CREATION_REQUEST)
    row = scim_members.add_group(organization=organization, profile=group_profile_of(sent))
    return _created(request, group_resource(selectors.scim_group(organization, row.id)))


@scim("GET", "PUT", "PATCH", "DELETE")
def group(request: HttpRequest, organization: Organization, group_id: str) -> HttpResponse:
    """Retrieve, replace, change or remove a group."""
    row = selectors.scim_group(organization, group_id)
    if request.method == "GET":
        return _response(group_resource(row), request)
    if request.method == "DELETE":
        scim_members.remove_group(organization=organization, group_id=group_id)
        return HttpResponse(status=204)
    if request.method == "PUT":
        current = scim_requests.resource(request, Group, Context.RESOURCE_REPLACEMENT_REQUEST)
    else:
        current = bare(row)
        scim_requests.patched(request, current)
    scim_members.change_group(
        organization=organization, group_id=group_id, profile=group_profile_of(current)
    )
    return _response(group_resource(selectors.scim_group(organization, group_id)), request)


@scim("GET", "POST", "PUT", "PATCH", "DELETE")
def nothing(request: HttpRequest, organization: Organization, rest: str) -> HttpResponse:
    """Return 404 for any other path."""
    return _error(404, "There is no such resource.")


def _authenticated_token(request: HttpRequest) -> ScimToken | None:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer":
        return None
    found = selectors.scim_token_by_digest(token_digest(token.strip()))
    now = timezone.now()
    if found and (found.last_used_at is None or now - found.last_used_at > USED_EVERY):
        found.last_used_at = now
        found.save(update_fields=["last_used_at"])
    return found


def _models() -> list[type[Resource[Any]]]:
    return list(MODELS.values())


def _page(
    request: HttpRequest,
    model: type[Resource[Any]],
    rows: QuerySet[ScimUser] | QuerySet[ScimGroup],
    shown: Callable[[Any], Resource[Any]],
) -> HttpResponse:
    parameters = _parameters(request, SearchRequest)
    start = min((parameters.start_index or 1) - 1, START_MAX)
    count = RESULTS_MAX if parameters.count is None else min(parameters.count, RESULTS_MAX)
    found: list[Model] = list(rows[start : start + count])
    return _list_response(request, model, [shown(row) for row in found], rows.count(), start)


def _unfiltered(request: HttpRequest, model: type[Resource[Any]], rows: list[Any]) -> HttpResponse:
    if "filter" in request.GET:
        return _error(403, "What there is here cannot be filtered.")
    return _list_response(request, model, rows, len(rows), 0)


def _list_response(
    request: HttpRequest, model: type[Resource[Any]], rows: list[Any], total: int, start: int
) -> HttpResponse:
    response = ListResponse[model](  # type: ignore[valid-type]
        total_results=total, start_index=start + 1, items_per_page=len(rows), resources=rows
    )
    return _response(response, request)


def _parameters(request: HttpRequest, model: Any) -> Any:
    names = {"attributes", "excludedAttributes", "startIndex", "count"}
    fields = {"attributes", "excludedAttributes"} if model is ResponseParameters else names
    return model.model_validate({name: request.GET[name] for name in fields if name in request.GET})


def _response(resource: Any, request: HttpRequest | None = None, status: int = 200) -> HttpResponse:
    chosen: dict[str, Any] = {}
    if request is not None:
        parameters = _parameters(request, ResponseParameters)
        chosen = {
            "attributes": parameters.attributes,
            "excluded_attributes": parameters.excluded_attributes,
        }
    body = resource.model_dump_json(scim_ctx=Context.RESOURCE_QUERY_RESPONSE, **chosen)
    return HttpResponse(body, status=status, content_type=CONTENT_TYPE)


def _created(request: HttpRequest, resource: Resource[Any]) -> HttpResponse:
    response = _response(resource, request, status=201)
    if resource.meta is not None and resource.meta.location is not None:
        response.headers["Location"] = str(resource.meta.location)
    return response


def _service_error(refused: ServiceError) -> HttpResponse:
    kinds = {400: "invalidValue", 409: "uniqueness" if refused.param else ""}
    return _error(refused.status, refused.message, kinds.get(refused.status, ""))


def _validation_error(error: ValidationError) -> HttpResponse:
    first = error.errors(include_url=False, include_context=True)[0]
    kind = (first.get("ctx") or {}).get("scim_type") or "invalidValue"
    where = ".".join(map(str, first["loc"]))
    return _error(400, f"{where}: {first['msg']}".removeprefix(": "), kind)


def _error(status: int, detail: str, kind: str = "") -> HttpResponse:
    body = Error(status=status, detail=detail, scim_type=kind or None).model_dump_json()
    return HttpResponse(body, status=status, content_type=CONTENT_TYPE)

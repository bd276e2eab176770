"""The playground: its page and its stream."""

import msgspec
from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
    StreamingHttpResponse,
)
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from control.api_keys.playground import playground_secret
from control.errors import ObjectNotFound, ServiceError
from control.permissions import Permission
from web.console.base import PageContext, address, console_page, get_page_context, project_of
from web.console.code_samples import MODEL, curl, embeddings_calls
from web.console.offers import option_named, variant_options
from web.console.playground.client import PlaygroundRun, relay
from web.console.playground.errors import playground_error
from web.console.playground.request import PlaygroundRequest, gateway_body, parse_request

ANSWER_TOKENS = 256
"""The page's default for the longest response."""

SIGNED_OUT = _("You were signed out. Sign in again in another tab; this conversation stays here.")


@console_page("playground")
def playground(page: PageContext) -> HttpResponse:
    """Show the page and create its key, so that the gateways have it by the first request."""
    may_use = page.may(Permission.API_KEYS_WRITE)
    chosen, options = page.request.GET.get("model", ""), variant_options(page.organization)
    offers = [offer for offer in options if not offer.model.makes_embeddings]
    embedders = [offer for offer in options if offer.model.makes_embeddings]
    embedders.sort(key=lambda offer: offer.public_id != chosen)
    if may_use and offers and page.projects and page.organization.is_active:
        playground_secret(user=page.user, project=page.project or page.projects[0])
    context = {
        "may_use": may_use,
        "offers": offers,
        "chosen": chosen,
        "embedder": embedders[0] if embedders else None,
        "embeddings_calls": embeddings_calls(embedders[0].public_id) if embedders else [],
        "api_base": settings.CONFIG.gateway_public_url,
        "max_tokens": min([ANSWER_TOKENS, *(offer.variant.output_tokens_max for offer in offers)]),
        "curl": curl(offers[0].public_id if offers else MODEL),
    }
    return page.render("console/playground.html", context)


@require_POST
async def playground_stream(request: HttpRequest, organization_id: str) -> HttpResponseBase:
    """Send a request to a model and return its response as server-sent events."""
    if not (await request.auser()).is_authenticated:
        return refusal(401, "signed_out", str(SIGNED_OUT))
    try:
        call = parse_request(request.body)
        run = await sync_to_async(run_of)(request, organization_id, call)
    except msgspec.ValidationError as error:
        words = gettext("This request is not valid: %(error)s.") % {"error": error}
        return refusal(400, "invalid_value", words)
    except msgspec.DecodeError:
        return refusal(400, "invalid_value", gettext("The request is not valid JSON."))
    except ServiceError as error:
        return refusal(error.status, error.code, error.message)
    return StreamingHttpResponse(
        relay(run),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def run_of(request: HttpRequest, organization_id: str, call: PlaygroundRequest) -> PlaygroundRun:
    """Return the call to make, after checking permissions. Raises ObjectNotFound, NotPermitted."""
    page = get_page_context(request, organization_id, "playground")
    project = project_of(page.projects, call.project_id)
    offer = option_named(page.organization, call.model)
    if project is None or offer is None:
        error = playground_error("model_not_found")
        raise ObjectNotFound(error.message, code=error.code)
    return PlaygroundRun(
        url=f"{settings.CONFIG.gateway_public_url}/chat/completions",
        receipts_url=address(page.organization, "requests") + "/",
        secret=playground_secret(user=page.user, project=project),
        body=gateway_body(call),
        schedule=offer.schedule,
    )


def refusal(status: int, code: str, message: str) -> JsonResponse:
    """Return the error that the page shows in place of a response."""
    return JsonResponse({"code": code, "message": message}, status=status)

"""Requests that were refused or failed: why, and what to do."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

from control.dataplane.models import FailedRequest
from web.console.base import PageContext
from web.console.labels import IdLabels

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


@dataclass(frozen=True, slots=True)
class Reason:
    """The label of an error code, what to do, and the section of the console where."""

    label: "StrOrPromise"
    remedy: "StrOrPromise"
    section: str = ""


_RETRY = _("Send the request again.")
REASONS = {
    "credit_balance_exhausted": Reason(
        _("No credits left"), _("Add credits. Requests work again within seconds."), "billing"
    ),
    "organization_spend_limit_exceeded": Reason(
        _("Organization's spending limit"),
        _("Raise the limit, or wait until it renews."),
        "limits",
    ),
    "project_spend_limit_exceeded": Reason(
        _("Project's spending limit"), _("Raise the limit, or wait until it renews."), "limits"
    ),
    "key_budget_exceeded": Reason(
        _("Key's spending limit"), _("Raise the key's limit, or use another key."), "keys"
    ),
    "rate_limit_exceeded": Reason(
        _("Rate limit"),
        _("Send fewer requests at a time, or wait as long as `retry-after` says."),
        "rates",
    ),
    "organization_suspended": Reason(
        _("Organization suspended"), _("See Billing for the reason."), "billing"
    ),
    "missing_scope": Reason(
        _("Key without the scope"), _("Use a key with the scope `inference`."), "keys"
    ),
    "origin_not_allowed": Reason(
        _("Origin not allowed"),
        _("Add the page's origin to the key's project."),
        "settings",
    ),
    "model_not_found": Reason(
        _("Unknown model"),
        _("Use a model's name as it is on the Models page, and a key that may use it."),
        "models",
    ),
    "model_not_supported": Reason(
        _("Model for another endpoint"), _("Use another model for this endpoint."), "models"
    ),
    "model_unavailable": Reason(_("Model not available"), _("Try again, or use another model.")),
    "model_loading": Reason(_("Model loading"), _("Wait as long as `retry-after` says.")),
    "server_is_overloaded": Reason(_("Model busy"), _RETRY),
    "usage_unavailable": Reason(_("Credits in use elsewhere"), _RETRY),
    "request_quarantined": Reason(
        _("Request made the model fail"), _("Change the request, or try again later.")
    ),
    "timeout": Reason(_("Took too long"), _("Ask for fewer tokens, or stream the response.")),
    "context_length_exceeded": Reason(
        _("Prompt too long"), _("Shorten the prompt, or lower the maximum number of tokens.")
    ),
    "request_too_large": Reason(_("Request too large"), _("Send a smaller request.")),
    "request_too_complex": Reason(_("Request too complex"), _("Send a simpler JSON schema.")),
    "invalid_json": Reason(_("Invalid JSON"), _("Send a valid JSON body.")),
    "invalid_value": Reason(_("Invalid value"), _("Change the field as the message says.")),
    "unsupported_value": Reason(_("Unsupported value"), _("Change the field as the message says.")),
    "unknown_parameter": Reason(_("Unknown parameter"), _("Remove the field.")),
    "missing_required_parameter": Reason(_("Missing parameter"), _("Add the field.")),
    "unsupported_media_type": Reason(
        _("Unsupported content type"), _("Send plain, uncompressed JSON.")
    ),
    "headers_too_large": Reason(_("Headers too large"), _("Send fewer or smaller headers.")),
    "idempotency_conflict": Reason(
        _("Idempotency key in use"), _("Use a new key for a new request.")
    ),
    "idempotency_not_enabled": Reason(
        _("Idempotency keys are off"), _("Turn them on in Settings."), "settings"
    ),
    "idempotency_storage_full": Reason(
        _("Too many idempotency keys"), _("Wait until older keys expire, after a day.")
    ),
    "idempotency_answer_lost": Reason(
        _("Stored response lost"), _("Send the request with a new key.")
    ),
    "idempotency_unavailable": Reason(_("Idempotency keys unavailable"), _RETRY),
}
"""By the error code that the client was told."""
MONEY_SECTIONS = {"billing", "limits"}
OTHER = Reason(
    _("Other error"), _("Try again. If it goes on, contact support with the request ID.")
)


@dataclass(frozen=True, slots=True)
class FailedRequestRow:
    """A failed request with its reason in words and the names of its model and key."""

    request: FailedRequest
    reason: Reason
    model: str
    key: str
    project: str
    url: str
    remedy_url: str


def reason_of(code: str) -> Reason:
    """Return the reason for an error code."""
    return REASONS.get(code, OTHER)


def row_of(page: PageContext, request: FailedRequest, names: IdLabels) -> FailedRequestRow:
    """Return a failed request as it is shown."""
    reason = reason_of(request.code)
    is_open = reason.section not in MONEY_SECTIONS or page.may_see_money
    return FailedRequestRow(
        request=request,
        reason=reason,
        model=names.variants.get(request.variant_id, request.variant_id),
        key=names.keys.get(request.key_id, request.key_id),
        project=names.projects.get(request.project_id, request.project_id),
        url=page.url("receipt", str(request.request_id)),
        remedy_url=page.url(reason.section) if reason.section and is_open else "",
    )

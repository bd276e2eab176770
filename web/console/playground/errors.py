"""Error messages of the playground, which say what to do next."""

import msgspec
from django.utils.translation import gettext_lazy as _

WORDS = {
    "credit_balance_exhausted": _(
        "The organization's balance is used up, so this request was not run."
        " Requests work again within seconds of new credit."
    ),
    "organization_spend_limit_exceeded": _(
        "The organization has reached its spending limit for this month (UTC). An owner can raise"
        " it."
    ),
    "project_spend_limit_exceeded": _(
        "This project has reached its spending limit for this month (UTC)."
        " Choose another project, or ask an owner to raise it."
    ),
    "key_budget_exceeded": _("The playground's key has reached its spending limit for this month."),
    "context_length_exceeded": _(
        "This conversation and its answer do not fit the model's context."
        " Lower the maximum number of tokens, or start a new chat."
    ),
    "model_not_found": _("This model is not available to your organization. Choose another one."),
    "model_unavailable": _(
        "No replica of this model is running. Try again later, or choose another variant."
    ),
    "model_loading": _(
        "This model is loading. Try again in a few seconds, or choose another variant."
    ),
    "server_is_overloaded": _("All replicas are busy. Try again in a few seconds."),
    "rate_limit_exceeded": _("Your rate limit is reached. Wait a moment, then try again."),
    "invalid_api_key": _(
        "The gateway does not know the playground's key yet. Try again in a few seconds."
    ),
    "timeout": _("The model took too long to answer. Nothing was charged. Try again."),
    "unreachable": _("The gateway did not answer. Nothing was charged. Try again in a moment."),
    "cut_off": _(
        "The stream ended early because of an error on our side. Nothing was charged. Try again."
    ),
}


class GatewayError(msgspec.Struct, frozen=True):
    """The `error` of the gateway's error body."""

    message: str = ""
    code: str | None = None


class GatewayErrorBody(msgspec.Struct, frozen=True):
    """The gateway's error body."""

    error: GatewayError


class PlaygroundError(msgspec.Struct, frozen=True):
    """The error that the page shows: a message and a code."""

    message: str
    code: str


def playground_error(code: str, message: str = "") -> PlaygroundError:
    """Return the error with our message for `code`, or else the gateway's."""
    words = WORDS.get(code) or message or WORDS["unreachable"]
    return PlaygroundError(message=str(words), code=code)


def playground_error_from(body: bytes) -> PlaygroundError:
    """Return the error of a gateway's error body, or of a stream's `error` chunk."""
    try:
        error = msgspec.json.decode(body, type=GatewayErrorBody).error
    except (msgspec.DecodeError, msgspec.ValidationError):
        return playground_error("unreachable")
    return playground_error(error.code or "", error.message)

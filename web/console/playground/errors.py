"""Error messages of the playground: the gateway's own words, or ours where it has none."""

import msgspec
from django.utils.translation import gettext_lazy as _

WORDS = {
    "model_not_found": _("This model is not available to your organization. Choose another one."),
    "timeout": _("The model took too long to answer. Nothing was charged. Try again."),
    "unreachable": _("The gateway did not answer. Nothing was charged. Try again in a moment."),
    "cut_off": _(
        "The stream ended early because of an error on our side. Nothing was charged. Try again."
    ),
}
"""By our own codes."""
KEY_UNKNOWN = _("The gateway does not know the playground's key yet. Try again in a few seconds.")
"""In place of the gateway's words to a stranger."""


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


def playground_error(code: str) -> PlaygroundError:
    """Return an error of our own."""
    return PlaygroundError(message=str(WORDS[code]), code=code)


def playground_error_from(body: bytes) -> PlaygroundError:
    """Return the error of a gateway's error body, or of a stream's `error` chunk."""
    try:
        error = msgspec.json.decode(body, type=GatewayErrorBody).error
    except (msgspec.DecodeError, msgspec.ValidationError):
        return playground_error("unreachable")
    message = str(KEY_UNKNOWN) if error.code == "invalid_api_key" else error.message
    return PlaygroundError(message=message, code=error.code or "")

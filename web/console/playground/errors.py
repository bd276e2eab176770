"""Error messages of the playground, which say what to do next."""

import msgspec

WORDS = {
    "credit_balance_exhausted": (
        "The organization's balance is used up, so this request was not run."
        " Calls work again within seconds of new credit."
    ),
    "organization_spend_limit_exceeded": (
        "The organization has reached its spend limit for this month (UTC). An owner can raise it."
    ),
    "project_spend_limit_exceeded": (
        "This project has reached its spend limit for this month (UTC)."
        " Choose another project, or ask an owner to raise it."
    ),
    "key_budget_exceeded": "The playground's key has reached its spend limit for this month.",
    "context_length_exceeded": (
        "This conversation and its answer do not fit the model's context."
        " Lower the maximum of tokens, or start a new chat."
    ),
    "model_not_found": "This model is not offered to your organization. Pick another one.",
    "model_unavailable": (
        "No replica of this model is ready: it may still be starting."
        " Try again in a few seconds, or pick another variant."
    ),
    "server_is_overloaded": "All replicas are busy. Try again in a few seconds.",
    "rate_limit_exceeded": "Your rate limit is reached. Wait a moment, then try again.",
    "invalid_api_key": (
        "The gateway does not know the playground's key yet. Try again in a few seconds."
    ),
    "timeout": "The model took too long to answer. Nothing was charged; try again.",
    "unreachable": "The gateway did not answer. Nothing was charged; try again in a moment.",
    "cut_off": "The stream ended early through our fault. Nothing was charged; try again.",
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
    return PlaygroundError(message=WORDS.get(code) or message or WORDS["unreachable"], code=code)


def playground_error_from(body: bytes) -> PlaygroundError:
    """Return the error of a gateway's error body, or of a stream's `error` chunk."""
    try:
        error = msgspec.json.decode(body, type=GatewayErrorBody).error
    except (msgspec.DecodeError, msgspec.ValidationError):
        return playground_error("unreachable")
    return playground_error(error.code or "", error.message)

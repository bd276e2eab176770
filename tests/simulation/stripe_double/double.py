"""Who asks, once per idempotency key, and what goes wrong on purpose."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import stripe

from control.config import StripeKeys
from tests.simulation.stripe_double import params
from tests.simulation.stripe_double.errors import ApiError
from tests.simulation.stripe_double.faults import Fault
from tests.simulation.stripe_double.money import StripeMoney
from tests.simulation.stripe_double.routes import ROUTES, Route

KEYS = StripeKeys(
    secret="sk_test_double",
    publishable="pk_test_double",
    webhook_secrets=("whsec_double",),
    mode="test",
)
KEY_LIVES_SECONDS = 24 * 3600
"""How long Stripe remembers an idempotency key."""
PREFIX = "/v1/"


@dataclass(frozen=True, slots=True)
class Question:
    """A request: `form` is its body, or its query where it has none."""

    method: str
    path: str
    form: str
    headers: Mapping[str, str]

    @property
    def key(self) -> str:
        """Its idempotency key, nothing where it has none."""
        return self.headers.get("Idempotency-Key", "")


class Reply(NamedTuple):
    """What is answered, at once or late."""

    status: int
    body: bytes
    is_late: bool = False


class _Answer(NamedTuple):
    """What a key was answered, and when."""

    asked: object
    reply: Reply
    at: float


class StripeDouble(StripeMoney):
    """Stripe, with what it was asked, and the faults to come."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and idempotency key of each request that was answered."""
        self.faults: list[Fault] = []
        self.answers: dict[str, _Answer] = {}

    def forget(self) -> None:
        """Be as on the first day."""
        url = self.url
        self.__init__()  # type: ignore[misc]
        self.url = url

    @property
    def keys(self) -> StripeKeys:
        """What reaches it."""
        return replace(KEYS, api_base=self.url)

    def posts(self, path: str) -> list[str]:
        """Return the idempotency keys of the POSTs to a path."""
        return [key for method, at, key in self.requests if (method, at) == ("POST", path)]

    def succeeded(self) -> list[dict[str, Any]]:
        """Return the payments that took money."""
        return [each for each in self.all("payment_intent") if each["status"] == "succeeded"]

    def answer(self, asked: Question) -> Reply | None:
        """Answer a question; None where no answer ever comes."""
        path = asked.path.removeprefix(PREFIX)
        fault = next((each for each in self.faults if each.strikes(asked.method, path)), None)
        kind = fault.kind if fault else ""
        if kind == "lost_before":
            return None
        if kind == "rate_limit":
            error = {"type": "invalid_request_error", "code": "rate_limit", "message": "Slower."}
            return Reply(429, json.dumps({"error": error}).encode())
        reply = self._once(asked, path, params.decoded(asked.form), kind)
        if kind == "lost_after":
            return None
        return reply._replace(is_late=kind == "slow_after")

    def _once(self, asked: Question, path: str, given: dict[str, Any], fault: str) -> Reply:
        what = (asked.method, path, json.dumps(given, sort_keys=True))
        before = self.answers.get(asked.key)
        if before is not None and before.at + KEY_LIVES_SECONDS < self.clock():
            before = None
        try:
            self._check_caller(asked)
            if before is not None and asked.method == "POST":
                if before.asked != what:
                    message = "Keys for idempotent requests can only be used with the same call."
                    raise ApiError(400, message, kind="idempotency_error")
                return before.reply
            self.requests.append((asked.method, path, asked.key))
            status, answer = 200, self._work(asked.method, path, given, fault)
        except ApiError as error:
            status, answer = error.status, error.body
        reply = Reply(status, json.dumps(answer).encode())
        is_kept = asked.method == "POST" and status not in (401, 429) and before is None
        if is_kept and answer.get("error", {}).get("code") != "parameter_unknown":
            self.answers[asked.key] = _Answer(what, reply, self.clock())
        return reply

    def _check_caller(self, asked: Question) -> None:
        if asked.headers.get("Authorization") != f"Bearer {KEYS.secret}":
            raise ApiError(401, "Invalid API Key provided")
        if asked.headers.get("Stripe-Version") != stripe.api_version:
            raise ApiError(400, "The API version is not pinned.")
        if asked.method == "POST" and not asked.key:
            raise ApiError(400, "A POST needs an Idempotency-Key here.")

    def _work(self, method: str, path: str, given: dict[str, Any], fault: str) -> dict[str, Any]:
        broken = ApiError(500, "An unknown error occurred", kind="api_error")
        if fault == "server_error":
            raise broken
        route, thing_id = _route(method, path)
        asked = params.checked(given, route.params)
        expand = asked.pop("expand", [])
        thing = route.answer(self, asked, thing_id)
        if fault == "error_after":
            raise broken
        shown = self.expanded(thing, expand)
        shown.pop("_asked", None)
        return shown


def _route(method: str, path: str) -> tuple[Route, str]:
    parts = path.split("/")
    for (wanted, pattern), route in ROUTES.items():
        wants = pattern.split("/")
        if wanted == method and len(wants) == len(parts):
            pairs = list(zip(wants, parts, strict=True))
            if all(want in ("*", part) for want, part in pairs):
                return route, next((part for want, part in pairs if want == "*"), "")
    raise ApiError(404, f"Unrecognized request URL ({method}: /v1/{path}).")

"""The operators' API: errors that name the value, pages, filters and what services decide."""

from typing import Any

import pytest

from billing.credit.models import CreditGrant
from control.audit.models import AuditEvent
from control.catalog.models import Model
from control.limits.models import RateLimitOverride
from control.limits.rate_limits import create_usage_tier
from control.pricing.models import Price
from tests.fixtures.operator_tokens import (
    bearer_client,
    furnish_platform,
    make_operator,
    make_token,
)
from tests.fixtures.organizations import (
    OPERATOR,
    SeededOrganization,
    make_model,
    make_organization,
    make_variant,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
BASE = "/api/v1/admin"


class Script:
    """Calls the operators' API with an owner's token."""

    def __init__(self) -> None:
        self.client = bearer_client(make_token(make_operator())[1])

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Return the response."""
        sent = {} if body is None else {"data": body, "content_type": "application/json"}
        return getattr(self.client, method)(f"{BASE}/{path}", headers=headers, **sent)

    def error(self, method: str, path: str, body: Any = None) -> tuple[int, str, str, str]:
        """Return the status, param, code and message of an error."""
        reply = self(method, path, body)
        error = reply.json()["error"]
        return reply.status_code, error["param"], error["code"], error["message"]


@pytest.fixture
def script(db: None) -> Script:
    return Script()


VARIANT = {
    "precision": "bf16", "weights": "/srv/w", "context_tokens": 512, "output_tokens_max": 256,
    "vocabulary_size": 1024,
}  # fmt: skip
WRONG = [
    ("get", "models?limit=many", None, "limit", "limit is 'many'; wanted 1 to 200"),
    ("get", "models?limit=0", None, "limit", "limit is '0'; wanted 1 to 200"),
    ("get", "models?after=x", None, "after", "after is 'x'; wanted that of a page's `next`"),
    ("get", "models?after=cD14", None, "after", "after is 'cD14'; wanted that of a page's `next`"),
    ("get", "models?colour=red", None, "colour", "colour cannot be set."),
    ("get", "organizations?status=odd", None, "status", "status is 'odd'; "),
    ("get", "audit-events?start_time=soon", None, "start_time", "start_time is 'soon'; "),
    ("post", "models", {"public_id": "x"}, "name", "name: This field is required."),
    ("post", "models", {"public_id": "x", "name": "X", "task": 7}, "task", "task is 7; "),
    ("post", "models", {"public_id": "small", "name": "X"}, "public_id", "public_id: "),
    ("post", "models", ["x"], None, "body: Invalid data."),
    (
        "post", "variants", {**VARIANT, "model_id": "mdl_none"},
        "model_id", "model_id is 'mdl_none'; There is no such model.",
    ),
    ("post", "deployments", {"variant_id": "x\0"}, "variant_id", "variant_id is 'x\\x00'; "),
    ("post", "price-books", {"name": "x", "ends_at": "soon"}, "ends_at", "ends_at is 'soon'; "),
]  # fmt: skip


@pytest.mark.parametrize("case", WRONG, ids=lambda case: f"{case[1]} {case[3]}")
def test_bad_input_names_field_value_and_what_was_wanted(
    script: Script, case: tuple[str, str, Any, str | None, str]
) -> None:
    method, path, body, param, message = case
    make_model("small")
    status, named, _, said = script.error(method, path, body)
    assert (status, named) == (400, param)
    assert said.startswith(message)


def test_a_method_that_a_route_does_not_have_is_refused(script: Script) -> None:
    for path in ("audit-events", f"organizations/{make_organization().id}/balance"):
        assert script.error("post", path, {})[0] == 405


def test_a_list_is_read_page_by_page(script: Script) -> None:
    ids = {make_model(f"model-{number}").id for number in range(3)}
    first = script("get", "models?limit=2").json()
    query = first["next"].partition("?")[2]
    second = script("get", f"models?{query}").json()
    assert {row["id"] for row in first["data"] + second["data"]} == ids
    assert (len(second["data"]), second["next"]) == (1, None)


def test_a_changed_model_gets_its_default_variant_or_nothing_changes(script: Script) -> None:
    model = make_model()
    make_variant(model)
    other, draft = make_variant(model, "fp8"), make_variant(make_model("another"))
    changes = {"name": "New", "default_variant_id": draft.id}
    status, param, code, _ = script.error("patch", f"models/{model.id}", changes)
    assert (status, param, code) == (409, "default_variant", "conflict")
    assert Model.objects.get(id=model.id).name == "small"
    changes["default_variant_id"] = other.id
    assert script("patch", f"models/{model.id}", changes).json()["default_variant_id"] == other.id


def test_what_never_changes_cannot_be_sent(script: Script) -> None:
    variant = make_variant(make_model())
    for path, field in (
        (f"models/{variant.model_id}", "public_id"),
        (f"variants/{variant.id}", "precision"),
        (f"organizations/{variant.model_id}", "status"),
    ):
        status, param, code, _ = script.error("patch", path, {field: "x"})
        assert (status, param, code) == (400, field, "unknown_parameter")


def test_a_price_is_set_again_and_removed(script: Script) -> None:
    variant = make_variant(make_model())
    ids = furnish_platform(variant)
    prices = f"price-books/{ids['book_id']}/prices"
    cheaper = {"variant_id": variant.id, "input_nanos": 9, "cached_input_nanos": 8}
    assert script("post", prices, {**cheaper, "output_nanos": 7}).json()["id"] == ids["price_id"]
    assert Price.objects.get(id=ids["price_id"]).output_nanos == 7
    wrong = script("delete", f"price-books/{ids['scheduled_book_id']}/prices/{ids['price_id']}")
    assert wrong.status_code == 404
    assert script("delete", f"{prices}/{ids['price_id']}").status_code == 204
    assert script("post", f"price-books/{ids['book_id']}/publish", {}).status_code == 400
    cancelled = script("post", f"price-books/{ids['scheduled_book_id']}/cancel")
    assert cancelled.json()["state"] == "cancelled"


@pytest.mark.parametrize("text", ["acm", "owner@ACME", "{id}"])
def test_customers_are_found_by_name_email_and_id(
    script: Script, org: SeededOrganization, outsider: SeededOrganization, text: str
) -> None:
    found = script("get", f"organizations?search={text.format(id=org.id)}").json()["data"]
    assert [row["id"] for row in found] == [org.id]
    assert script("get", "organizations?status=suspended").json()["data"] == []


def test_terms_that_are_not_sent_stay(script: Script, org: SeededOrganization) -> None:
    terms = f"organizations/{org.id}/terms"
    assert script("patch", terms, {"billing_mode": "postpaid", "weight": 3}).status_code == 200
    script("patch", terms, {"spend_limit_nanos": 5})
    assert script("get", terms).json() == {
        "billing_mode": "postpaid", "spend_limit_nanos": 5, "credit_limit_nanos": 10**12,
        "weight": 3,
    }  # fmt: skip


def test_an_operator_sets_the_credit_limit_with_an_audit_event(
    script: Script, org: SeededOrganization
) -> None:
    terms = f"organizations/{org.id}/terms"
    body = {"billing_mode": "postpaid", "credit_limit_nanos": 7 * 10**9}
    assert script("patch", terms, body).json()["credit_limit_nanos"] == 7 * 10**9
    balance = script("get", f"organizations/{org.id}/balance").json()
    assert (balance["credit_limit_nanos"], balance["is_credit_limit_suspended"]) == (
        7 * 10**9, False,
    )  # fmt: skip
    event = AuditEvent.objects.filter(action="organization.terms_updated").latest("id")
    assert event.details["after"]["credit_limit_nanos"] == 7 * 10**9
    for nanos in (-1, 10**18 + 1):
        status, param, _, _ = script.error("patch", terms, {"credit_limit_nanos": nanos})
        assert (status, param) == (400, "credit_limit_nanos")


def test_credit_is_granted_once_for_each_key(script: Script, org: SeededOrganization) -> None:
    grants, body = f"organizations/{org.id}/credit-grants", {"kind": "prepaid", "reason": "Wire"}
    body["amount_nanos"] = 10**9
    status, param, code, _ = script.error("post", grants, body)
    assert (status, param, code) == (400, "Idempotency-Key", "missing_required_parameter")
    key = {"idempotency-key": "wire-7"}
    first, again = (script("post", grants, body, **key) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"] == CreditGrant.objects.get().id
    assert script("post", grants, {**body, "amount_nanos": 5}, **key).status_code == 409
    for shown in (first.json(), script("get", grants).json()["data"][0]):
        assert (shown["state"], shown["remaining_nanos"]) == ("active", 10**9)
    balance = script("get", f"organizations/{org.id}/balance").json()
    assert (balance["balance_nanos"], balance["binding_limit"]["period"]) == (10**9, "lifetime")


def test_a_post_with_an_idempotency_key_happens_once(script: Script) -> None:
    key, body = {"idempotency-key": "once"}, {"public_id": "owl", "name": "Owl"}
    first, again = (script("post", "models", body, **key) for _ in range(2))
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert script("post", "models", {**body, "name": "x"}, **key).status_code == 409


def test_limits_on_one_model_are_set_and_lifted(script: Script, org: SeededOrganization) -> None:
    model = make_model()
    tier = create_usage_tier(actor=OPERATOR, name="Gold", paid_min_nanos=0, figures={})
    limits = f"usage-tiers/{tier.id}/models/{model.id}"
    [row] = script("put", limits, {"requests_per_minute": 5}).json()["model_limits"]
    assert (row["model_id"], row["requests_per_minute"]) == (model.id, 5)
    assert script("delete", limits).status_code == 204
    assert script("get", f"usage-tiers/{tier.id}").json()["model_limits"] == []

    own = f"organizations/{org.id}/rate-limits"
    body = {"model_id": model.id, "concurrent_requests": 2}
    overall, single = script("put", own, body).json()["limits"]
    assert (overall["is_override"], overall["model_id"]) == (False, None)
    assert (single["is_override"], single["model_id"]) == (True, model.id)
    assert single["concurrent_requests"] == 2
    assert script("delete", f"{own}?model_id={model.id}").status_code == 204
    assert not RateLimitOverride.objects.exists()


def test_audit_events_are_filtered(script: Script, org: SeededOrganization) -> None:
    make_model()
    [event] = script("get", "audit-events?action=model.created").json()["data"]
    assert (event["actor_name"], event["operator_token_id"]) == ("tests", None)
    path = f"organizations/{org.id}"
    assert script("patch", path, {"name": "New"}).status_code == 200
    listed = script("get", f"audit-events?organization_id={org.id}&action=organization.renamed")
    [renamed] = listed.json()["data"]
    assert renamed["actor_name"] == "owner@operators.example"
    assert (renamed["target_name"], renamed["details"]["after"]) == ("New", {"name": "New"})
    for window in ("end_time=2020-01-01T00:00:00Z", "start_time=2999-01-01T00:00:00Z"):
        assert script("get", f"audit-events?{window}").json()["data"] == []

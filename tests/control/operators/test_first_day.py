"""An operator's first day, by a client that a tool generates from the OpenAPI document: a model
goes live with its prices, a customer is added with a key, and another one is found, given credit,
suspended, resumed and put in a usage tier."""

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
from django.db import connections
from django.utils import timezone

from control.api_keys.models import digests_of
from control.api_keys.selectors import key_by_digests
from control.asgi import application
from control.audit.models import AuditEvent
from control.feed.selectors import last_record
from control.limits.usage_tiers import update_usage_tiers
from control.operators.models import OperatorToken
from control.organizations.models import Invitation
from control.permissions import Role
from tests.fixtures.generated_client import GeneratedClient
from tests.fixtures.operator_tokens import METERS, make_operator, make_token
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.serving import serving

pytestmark = [
    pytest.mark.integration,
    pytest.mark.django_db(transaction=True),
    pytest.mark.xdist_group("generated_client"),
]


class Script:
    """Calls operations by name, as a script with the generated client does."""

    def __init__(self, made: GeneratedClient, client: Any) -> None:
        self.made, self.client = made, client

    def __call__(self, name: str, body: dict[str, Any] | None = None, **parameters: Any) -> Any:
        """Return what an operation of the operators' API answers; it must succeed."""
        reply = self.reply(name, body, **parameters)
        assert reply.status_code < 300, (name, reply.content)
        return reply.parsed

    def reply(self, name: str, body: dict[str, Any] | None = None, **parameters: Any) -> Any:
        """Return the response of an operation."""
        run = self.made.operation(f"admin_{name}")
        if body is not None:
            hint = get_type_hints(run)["body"]
            [kind] = [each for each in (hint, *get_args(hint)) if hasattr(each, "from_dict")]
            parameters["body"] = kind.from_dict(body)
        return run(client=self.client, **parameters)


@pytest.fixture
def token(transactional_db: None) -> tuple[OperatorToken, str]:
    return make_token(make_operator())


@pytest.fixture
def script(made: GeneratedClient, token: tuple[OperatorToken, str]) -> Iterator[Script]:
    with serving(application) as address, made.signed_in(address, token[1]) as client:
        yield Script(made, client)
    connections.close_all()


def test_an_operators_first_day(
    script: Script, token: tuple[OperatorToken, str], org: SeededOrganization
) -> None:
    model = script("models_create", {"public_id": "owl", "name": "Owl"}, idempotency_key="owl")
    again = script("models_create", {"public_id": "owl", "name": "Owl"}, idempotency_key="owl")
    assert again.id == model.id
    variant = script(
        "variants_create",
        {
            "model_id": model.id, "precision": "bf16", "weights": "/srv/weights/owl",
            "context_tokens": 4096, "output_tokens_max": 1024, "vocabulary_size": 32_000,
        },
    )  # fmt: skip
    ahead = {"override_reason": "Announced for today, its replica is loading"}
    refused = script.reply("variants_publish", {}, variant_id=variant.id)
    assert (refused.status_code, refused.parsed.error.param) == (409, "price")
    script("variants_publish", ahead, variant_id=variant.id)
    deployment = script("deployments_create", {"variant_id": variant.id, "replicas_min": 1})
    assert last_record("deployment", deployment.id) is not None
    price(script, variant.id)

    [found] = script("organizations_list", search=org.owner.email).data
    assert found.id == org.id
    grant = {"kind": "prepaid", "amount_nanos": 25 * 10**9, "reason": "Bank transfer"}
    for _ in range(2):
        script("credit_grants_create", grant, organization_id=org.id, idempotency_key="wire-1")
    assert script("balance_retrieve", organization_id=org.id).balance_nanos == 25 * 10**9
    reason = {"reason": "Abuse report"}
    assert script("organizations_suspend", reason, organization_id=org.id).status == "suspended"
    assert script("organizations_resume", {}, organization_id=org.id).status == "active"

    tier = script(
        "usage_tiers_create", {"name": "Start", "paid_min_nanos": 0, "requests_per_minute": 60}
    )
    assert update_usage_tiers(now=timezone.now()) == 1
    assert script("rate_limits_retrieve", organization_id=org.id).usage_tier_id == tier.id
    check_audit_events(script, token[0])


def test_a_customer_is_added_with_its_owners_invitation_and_a_key(script: Script) -> None:
    terms = {"name": "Newcomers", "owner_email": "ada@newcomers.example"}
    made = script("organizations_create", terms, idempotency_key="newcomers")
    assert script("organizations_create", terms, idempotency_key="newcomers").id == made.id
    [invitation] = Invitation.objects.filter(organization=made.id)
    assert (invitation.email, invitation.role) == ("ada@newcomers.example", Role.OWNER)
    key = script("api_keys_create", {"name": "First key"}, organization_id=made.id)
    found = key_by_digests(digests_of(key.secret), timezone.now())
    assert found is not None
    assert (found.organization_id, found.scopes) == (made.id, ["inference"])
    refused = script.reply("organizations_create", {"name": "X", "owner_email": "ada"})
    assert (refused.status_code, refused.parsed.error.param) == (400, "owner_email")


def price(script: Script, variant_id: str) -> None:
    """Draft and publish prices, the first time with one that looks mis-keyed."""
    book = script("price_books_create", {"name": "List prices"})
    free = {"variant_id": variant_id, **dict.fromkeys(METERS, 0)}
    script("price_books_set_price", free, book_id=book.id)
    refused = script.reply("price_books_publish", {}, book_id=book.id)
    assert refused.status_code == 409
    assert refused.parsed.error.code == "confirmation_needed"
    assert "publish List prices with 3 unusual prices" in refused.parsed.error.message
    script("price_books_set_price", {"variant_id": variant_id, **METERS}, book_id=book.id)
    published = script("price_books_publish", {}, book_id=book.id)
    assert published.state == "active"
    assert [each.output_nanos for each in published.prices] == [METERS["output_nanos"]]


def check_audit_events(script: Script, token: OperatorToken) -> None:
    """See that every change names the operator and the token."""
    events = script("audit_events_list", operator_token_id=token.id, limit=200).data
    assert {event.actor_id for event in events} == {token.created_by_id}
    done = [event.action for event in events if not event.action.endswith(".viewed_by_operator")]
    assert done[::-1] == [
        "model.created", "variant.created", "variant.published", "deployment.created",
        "price_book.created", "price_book.price_set", "price_book.price_set",
        "price_book.published",
        "credit.grant", "organization.suspended", "organization.resumed", "usage_tier.created",
    ]  # fmt: skip
    own = AuditEvent.objects.filter(details__operator_token=token.id)
    assert own.count() == len(events)

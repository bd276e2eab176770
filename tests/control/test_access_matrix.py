"""Who may call which operation of the management API: every role, a key of each scope, people and
keys of another organization, and callers without credentials. A new operation fails until it is
listed here."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from control.accounts.models import User
from control.api_keys.models import Scope
from control.audit.models import AuditEvent
from control.operators.models import OperatorToken
from control.organizations.models import Membership
from control.permissions import OPERATOR_PERMISSIONS, OperatorRole, Permission, Role
from tests.fixtures.amounts import amounts_in
from tests.fixtures.audit_words import unclear
from tests.fixtures.database import let_transaction_last
from tests.fixtures.furnished import furnish
from tests.fixtures.openapi import openapi_document
from tests.fixtures.operations import QUERIES, Ids, body_of, told_in
from tests.fixtures.operator_tokens import bearer_client, make_operator, make_token
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.paying import in_place_of_stripe
from tests.fixtures.routes import routes
from tests.fixtures.second_factor import let_time_pass

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
KEY = "manage"
"""A key with this scope acts as an admin."""
PEOPLE = frozenset(Role)
EVERYBODY = PEOPLE | {KEY}
MONEY = frozenset({Role.OWNER, Role.ADMIN, Role.BILLING, KEY})
KEYS = frozenset({Role.OWNER, Role.ADMIN, Role.DEVELOPER, KEY})
ADMINS = frozenset({Role.OWNER, Role.ADMIN, KEY})
"""Who changes keys of others, too: developers change those alone that they made."""
OWNER = frozenset({Role.OWNER})
ORGANIZATION = "/organizations/{organization_id}"
IN_ORGANIZATION = {
    "GET /alert-settings": MONEY,
    "PATCH /alert-settings": MONEY,
    "GET /alerts": MONEY,
    "GET /api-keys": EVERYBODY,
    "POST /api-keys": KEYS,
    "GET /api-keys/{key_id}": EVERYBODY,
    "PATCH /api-keys/{key_id}": ADMINS,
    "GET /api-keys/{key_id}/rate-limits": EVERYBODY,
    "PATCH /api-keys/{key_id}/rate-limits": MONEY,
    "POST /api-keys/{key_id}/revoke": ADMINS,
    "POST /api-keys/{key_id}/revoke-previous-secrets": ADMINS,
    "POST /api-keys/{key_id}/rotate": ADMINS,
    "GET /audit-events": ADMINS,
    "GET /auto-recharge": MONEY,
    "PUT /auto-recharge": MONEY,
    "GET /billing-profile": MONEY,
    "PATCH /billing-profile": MONEY,
    "GET /costs": MONEY,
    "GET /credit-balance": MONEY,
    "GET /credit-grants": MONEY,
    "POST /credit-purchase-quotes": MONEY,
    "GET /credit-purchases": MONEY,
    "POST /credit-purchases": MONEY,
    "GET /credit-purchases/{purchase_id}": MONEY,
    "GET /deletion-preview": OWNER,
    "GET /failed-requests": EVERYBODY,
    "GET /failed-requests/{request_id}": EVERYBODY,
    "GET /invitations": ADMINS,
    "POST /invitations": ADMINS,
    "DELETE /invitations/{invitation_id}": ADMINS,
    "GET /invoices": MONEY,
    "GET /invoices/{invoice_id}": MONEY,
    "GET /invoices/{invoice_id}/pdf": MONEY,
    "GET /members": EVERYBODY,
    "GET /members/{member_id}": EVERYBODY,
    "PATCH /members/{member_id}": ADMINS,
    "DELETE /members/{member_id}": ADMINS,
    "GET /models": EVERYBODY,
    "GET /models/{model}": EVERYBODY,
    "GET /payment-methods": MONEY,
    "POST /payment-methods": MONEY,
    "GET /payment-methods/{method_id}": MONEY,
    "PATCH /payment-methods/{method_id}": MONEY,
    "DELETE /payment-methods/{method_id}": MONEY,
    "GET /projects": EVERYBODY,
    "POST /projects": ADMINS,
    "GET /projects/{project_id}": EVERYBODY,
    "PATCH /projects/{project_id}": ADMINS,
    "POST /projects/{project_id}/archive": ADMINS,
    "GET /projects/{project_id}/rate-limits": EVERYBODY,
    "PATCH /projects/{project_id}/rate-limits": MONEY,
    "POST /projects/{project_id}/restore": ADMINS,
    "GET /rate-limits": EVERYBODY,
    "GET /requests": EVERYBODY,
    "GET /requests/{request_id}": EVERYBODY,
    "GET /spending-limits": MONEY,
    "POST /spending-limits": MONEY,
    "GET /spending-limits/{limit_id}": MONEY,
    "PATCH /spending-limits/{limit_id}": MONEY,
    "DELETE /spending-limits/{limit_id}": MONEY,
    "GET /usage": EVERYBODY,
    "GET /webhook-endpoints": ADMINS,
    "POST /webhook-endpoints": ADMINS,
    "GET /webhook-endpoints/{endpoint_id}": ADMINS,
    "PATCH /webhook-endpoints/{endpoint_id}": ADMINS,
    "DELETE /webhook-endpoints/{endpoint_id}": ADMINS,
    "GET /webhook-endpoints/{endpoint_id}/deliveries": ADMINS,
    "GET /webhook-endpoints/{endpoint_id}/deliveries/{delivery_id}": ADMINS,
    "POST /webhook-endpoints/{endpoint_id}/deliveries/{delivery_id}/resend": ADMINS,
    "POST /webhook-endpoints/{endpoint_id}/rotate": ADMINS,
    "POST /webhook-endpoints/{endpoint_id}/test": ADMINS,
}
ALLOWED = {
    "POST /invitations/accept": PEOPLE,
    "GET /organization/costs": MONEY,
    "GET /organization/usage/completions": EVERYBODY,
    "GET /organizations": EVERYBODY,
    "POST /organizations": PEOPLE,
    "GET /organizations/{organization_id}": EVERYBODY,
    "PATCH /organizations/{organization_id}": OWNER,
    "DELETE /organizations/{organization_id}": OWNER,
    **{
        label.replace(" ", f" {ORGANIZATION}", 1): callers
        for label, callers in IN_ORGANIZATION.items()
    },
}
READ, CATALOG, CUSTOMERS, FINANCE = (
    Permission.PLATFORM_READ,
    Permission.CATALOG_WRITE,
    Permission.CUSTOMERS_WRITE,
    Permission.FINANCE_WRITE,
)
OPERATORS = {
    "GET /admin/audit-events": READ,
    "GET /admin/deployments": READ,
    "POST /admin/deployments": CATALOG,
    "GET /admin/deployments/{deployment_id}": READ,
    "PATCH /admin/deployments/{deployment_id}": CATALOG,
    "DELETE /admin/deployments/{deployment_id}": CATALOG,
    "POST /admin/deployments/{deployment_id}/end": CATALOG,
    "GET /admin/fleets": READ,
    "POST /admin/fleets": CATALOG,
    "GET /admin/fleets/{fleet_id}": READ,
    "PATCH /admin/fleets/{fleet_id}": CATALOG,
    "DELETE /admin/fleets/{fleet_id}": CATALOG,
    "GET /admin/models": READ,
    "POST /admin/models": CATALOG,
    "GET /admin/models/{model_id}": READ,
    "PATCH /admin/models/{model_id}": CATALOG,
    "GET /admin/organizations": READ,
    "POST /admin/organizations": CUSTOMERS,
    "GET /admin/organizations/{organization_id}": READ,
    "POST /admin/organizations/{organization_id}/api-keys": CUSTOMERS,
    "PATCH /admin/organizations/{organization_id}": CUSTOMERS,
    "GET /admin/organizations/{organization_id}/balance": READ,
    "GET /admin/organizations/{organization_id}/credit-grants": READ,
    "POST /admin/organizations/{organization_id}/credit-grants": FINANCE,
    "GET /admin/organizations/{organization_id}/rate-limits": READ,
    "PUT /admin/organizations/{organization_id}/rate-limits": CUSTOMERS,
    "DELETE /admin/organizations/{organization_id}/rate-limits": CUSTOMERS,
    "POST /admin/organizations/{organization_id}/resume": CUSTOMERS,
    "GET /admin/organizations/{organization_id}/suspend": READ,
    "POST /admin/organizations/{organization_id}/suspend": CUSTOMERS,
    "GET /admin/organizations/{organization_id}/terms": READ,
    "PATCH /admin/organizations/{organization_id}/terms": FINANCE,
    "GET /admin/price-books": READ,
    "POST /admin/price-books": FINANCE,
    "GET /admin/price-books/{book_id}": READ,
    "PATCH /admin/price-books/{book_id}": FINANCE,
    "POST /admin/price-books/{book_id}/cancel": FINANCE,
    "POST /admin/price-books/{book_id}/prices": FINANCE,
    "DELETE /admin/price-books/{book_id}/prices/{price_id}": FINANCE,
    "POST /admin/price-books/{book_id}/publish": FINANCE,
    "GET /admin/usage-tiers": READ,
    "POST /admin/usage-tiers": CUSTOMERS,
    "GET /admin/usage-tiers/{tier_id}": READ,
    "PATCH /admin/usage-tiers/{tier_id}": CUSTOMERS,
    "PUT /admin/usage-tiers/{tier_id}/models/{model_id}": CUSTOMERS,
    "DELETE /admin/usage-tiers/{tier_id}/models/{model_id}": CUSTOMERS,
    "GET /admin/variants": READ,
    "POST /admin/variants": CATALOG,
    "GET /admin/variants/{variant_id}": READ,
    "PATCH /admin/variants/{variant_id}": CATALOG,
    "DELETE /admin/variants/{variant_id}": CATALOG,
    "POST /admin/variants/{variant_id}/archive": CATALOG,
    "GET /admin/variants/{variant_id}/publish": READ,
    "POST /admin/variants/{variant_id}/publish": CATALOG,
    "POST /admin/variants/{variant_id}/quality-reports": CATALOG,
    "POST /admin/variants/{variant_id}/withdraw": CATALOG,
}
"""The operation that an operator token calls, and the permission it needs."""
NOTHING_THERE = {
    "POST /invitations/accept",
    f"GET {ORGANIZATION}/invoices/{{invoice_id}}",
    f"GET {ORGANIZATION}/invoices/{{invoice_id}}/pdf",
}
"""What answers everybody alike with 404, since there is none."""
KEEPS_KEYS_ITSELF = {
    f"POST {ORGANIZATION}/credit-purchases",
    "POST /admin/organizations/{organization_id}/credit-grants",
}
"""What knows its keys for good, and answers how a payment stands now."""
CONFLICT = {"DELETE /organizations/{organization_id}"}
"""What is refused to those who may, since money is under way."""
COMPATIBLE = {"GET /organization/usage/completions", "GET /organization/costs"}
"""Operations of OpenAI's administration clients, which name the organization in the query."""
OF_NO_ORGANIZATION = {"GET /organizations", "POST /organizations", "POST /invitations/accept"}
FOREIGN_IN_BODY = {
    f"POST {ORGANIZATION}/api-keys",
    f"POST {ORGANIZATION}/spending-limits",
    f"POST {ORGANIZATION}/credit-purchases",
}
"""What names a row of an organization in its body."""
PRICES = {
    f"GET {ORGANIZATION}/models",
    f"GET {ORGANIZATION}/models/{{model}}",
}
"""What lists prices, which are nobody's secret."""
NO_SECRETS = {"spend_limit_nanos", "paid_min_nanos", "nanos_per_million_tokens"}
"""A limit is named to whoever is refused for it; what a tier takes, and a price, are published."""
TELLS_MONEY = {
    f"GET {ORGANIZATION}/spending-limits": "limit_nanos",
    f"GET {ORGANIZATION}/credit-balance": "balance_nanos",
    f"GET {ORGANIZATION}/rate-limits": "paid_nanos",
    f"GET {ORGANIZATION}/requests": "charged_usd",
    f"GET {ORGANIZATION}/requests/{{request_id}}": "amount_nanos",
    f"GET {ORGANIZATION}/credit-purchases": "amount_cents",
}
"""Some of what members with a right to it are told."""
ONCE = {"idempotency-key": "once"}
PUBLIC = {"schema", "docs"}


@dataclass(frozen=True)
class Furnished:
    """An organization that has one of most things, and another one."""

    org: SeededOrganization
    outsider: SeededOrganization
    ids: Ids

    def call(self, client: Client, label: str, organization: SeededOrganization) -> HttpResponse:
        """Call an operation with the ids of `org`, in an organization; then undo what it did.

        What is refused must not have reached the audit log, whose events tell what was done.
        """
        with transaction.atomic():
            before = AuditEvent.objects.count()
            reply = self.send(client, label, organization)
            made = AuditEvent.objects.count() - before
            assert reply.status_code < 300 or not made, label
            assert not [
                words for event in AuditEvent.objects.all()[:made] for words in unclear(event)
            ]
            transaction.set_rollback(True)
        return reply

    def send(
        self, client: Client, label: str, organization: SeededOrganization, **more: Any
    ) -> HttpResponse:
        """Send the request; what it does stays. `more` goes into the body."""
        method, _, template = label.partition(" ")
        full_label = f"{method} /api/v1{template}"
        is_operators = label in OPERATORS
        names = {"organization_id": organization.id} | told_in(full_label, self.ids)
        names |= {} if is_operators else {"organization_id": organization.id}
        path = re.sub(r"{(\w+)}", lambda found: names.get(found[1], "x"), template)
        query = {**QUERIES.get(full_label, {})}
        if label in COMPATIBLE:
            query["organization_id"] = organization.id
        sent: dict[str, Any] = {}
        if method != "GET":
            body = body_of(full_label, self.ids) | more
            sent = {"data": body, "content_type": "application/json"}
        reply: HttpResponse = getattr(client, method.lower())(
            f"/api/v1{path}?{urlencode(query)}", headers=ONCE, **sent
        )
        if reply.streaming:
            # A download counts as under way until its end.
            reply.streaming_content = list(reply)
        return reply


@pytest.fixture
def furnished(
    org: SeededOrganization,
    outsider: SeededOrganization,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Furnished]:
    let_transaction_last()
    with in_place_of_stripe(settings, monkeypatch) as double:
        ids = furnish(org, double)
        member = Membership.objects.get(id=ids["member_id"]).user_id
        User.objects.filter(id=member).update(email="member@acme.example")  # `join` makes another
        yield Furnished(org, outsider, ids)


def person(user: User) -> Client:
    caller = Client()
    caller.force_login(user)
    return caller


def key(org: SeededOrganization, scope: Scope) -> Client:
    return Client(headers={"authorization": f"Bearer {org.mint(scopes=[scope])[1]}"})


def members(org: SeededOrganization) -> dict[str, Client]:
    """Return a caller for each role, and a key that manages."""
    people = {role: org.owner if role == Role.OWNER else org.join(role) for role in Role}
    return {role: person(user) for role, user in people.items()} | {KEY: key(org, Scope.MANAGE)}


def test_every_operation_is_listed() -> None:
    listed = {label.partition(" ")[2] for label in (*ALLOWED, *OPERATORS)}
    found = {re.sub(r"<\w+:(\w+)>", r"{\1}", each.template) for each in routes("api")}
    assert {each.removeprefix("api/v1") for each in found} - listed == {
        f"/{name}" for name in PUBLIC
    }
    described = {
        f"{method.upper()} {path.removeprefix('/api/v1')}"
        for path, operations in openapi_document()["paths"].items()
        for method in operations
    }
    assert described - {f"GET /{name}" for name in PUBLIC} == {*ALLOWED, *OPERATORS}


def test_members_may_what_the_table_says(furnished: Furnished) -> None:
    callers = members(furnished.org)
    wrong = []
    for label, allowed in ALLOWED.items():
        for name, caller in callers.items():
            status = furnished.call(caller, label, furnished.org).status_code
            good = 404 if label in NOTHING_THERE else 409 if label in CONFLICT else 200
            expected = good if name in allowed else 403
            if (status // 100 * 100 if status < 300 else status) != expected:
                wrong.append(f"{label} {name}: {status}, not {expected}")
    assert not wrong, "\n".join(wrong)


def test_every_post_with_an_idempotency_key_happens_once(furnished: Furnished) -> None:
    org, owner, operator = furnished.org, person(furnished.org.owner), operator_client("owner")
    posts = {label for label in (*ALLOWED, *OPERATORS) if label.startswith("POST")}
    for label in sorted(posts - NOTHING_THERE - CONFLICT):
        caller = operator if label in OPERATORS else owner
        with transaction.atomic():
            first = furnished.send(caller, label, org)
            done = AuditEvent.objects.count()
            again = furnished.send(caller, label, org)
            other = furnished.send(caller, label, org, another="field")
            assert AuditEvent.objects.count() == done, label
            transaction.set_rollback(True)
        assert (again.status_code, again.json()) == (first.status_code, first.json()), label
        if label not in KEEPS_KEYS_ITSELF:
            assert again.content == first.content, label
            assert "idempotent-replayed" not in first.headers
            assert again.headers["idempotent-replayed"] == "true", label
            assert (other.status_code, code_in(other)) == (409, "idempotency_conflict"), label


def test_who_sees_no_money_is_told_none(furnished: Furnished) -> None:
    callers = members(furnished.org)
    wrong = []
    for label in ALLOWED.keys() - PRICES:
        for name in callers.keys() - MONEY:
            reply = furnished.call(callers[name], label, furnished.org)
            if reply.status_code < 300 and (told := amounts_in(reply) - NO_SECRETS):
                wrong.append(f"{label} tells {name}: {', '.join(sorted(told))}")
    assert not wrong, "\n".join(wrong)
    for label, field in TELLS_MONEY.items():
        for name in MONEY:
            reply = furnished.call(callers[name], label, furnished.org)
            assert field in amounts_in(reply), f"{label} {name}"


def test_a_session_changes_nothing_long_after_its_sign_in(furnished: Furnished) -> None:
    owner = person(furnished.org.owner)
    let_time_pass(owner, 16 * 60)
    wrong = []
    for label in ALLOWED:
        reply = furnished.call(owner, label, furnished.org)
        is_asked = reply.status_code == 403 and code_in(reply) == "reauthentication_required"
        if is_asked == label.startswith("GET"):
            wrong.append(f"{label}: {reply}")
    assert not wrong, "\n".join(wrong)


def code_in(reply: HttpResponse) -> str:
    return str(reply.json()["error"]["code"])


def test_others_find_nothing(furnished: Furnished) -> None:
    """Neither by the id of an organization of others, nor by those of its rows in their own."""
    others = {
        "person": person(furnished.outsider.owner),
        "key": key(furnished.outsider, Scope.MANAGE),
    }
    wrong = []
    for label in ALLOWED.keys() - OF_NO_ORGANIZATION:
        of_row = "_id}" in label.replace("{organization_id}", "") or label in FOREIGN_IN_BODY
        for name, caller in others.items():
            for organization in [furnished.org] + [furnished.outsider] * of_row:
                reply = furnished.call(caller, label, organization)
                if (reply.status_code, reply.json()["error"]["code"]) != (404, "not_found"):
                    wrong.append(f"{label} {name} in {organization.organization.name}: {reply}")
    assert not wrong, "\n".join(wrong)
    for caller in others.values():
        listed = furnished.call(caller, "GET /organizations", furnished.org).json()["data"]
        assert [each["id"] for each in listed] == [furnished.outsider.id]


def test_who_has_no_credentials_or_a_key_for_inference_gets_in_nowhere(
    furnished: Furnished,
) -> None:
    inference, wrong = key(furnished.org, Scope.INFERENCE), []
    for label in ALLOWED:
        reply = furnished.call(Client(), label, furnished.org)
        challenge = reply.headers.get("www-authenticate", "")
        if reply.status_code != 401 or not challenge.startswith("Bearer"):
            wrong.append(f"{label} without credentials: {reply}")
        reply = furnished.call(inference, label, furnished.org)
        if (reply.status_code, reply.json()["error"]["type"]) != (403, "permission_denied"):
            wrong.append(f"{label} with a key for inference: {reply}")
    assert not wrong, "\n".join(wrong)


def operator_client(role: str, permissions: list[Permission] | None = None) -> Client:
    return bearer_client(make_token(make_operator(role), permissions)[1])


@pytest.mark.parametrize("role", list(OperatorRole))
def test_operators_may_what_the_table_says(furnished: Furnished, role: str) -> None:
    caller, wrong = operator_client(role), []
    for label, permission in OPERATORS.items():
        status = furnished.call(caller, label, furnished.org).status_code
        is_allowed = permission in OPERATOR_PERMISSIONS[role]
        if status >= 300 if is_allowed else status != 403:
            wrong.append(f"{label}: {status}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("permission", [READ, CATALOG])
def test_a_token_may_no_more_than_it_was_given(
    furnished: Furnished, permission: Permission
) -> None:
    caller, wrong = operator_client("owner", [permission]), []
    for label, needed in OPERATORS.items():
        reply = furnished.call(caller, label, furnished.org)
        if reply.status_code < 300 if needed != permission else reply.status_code >= 300:
            wrong.append(f"{label}: {reply}")
        if needed != permission:
            assert code_in(reply) == "permission_denied"
    assert not wrong, "\n".join(wrong)


def test_nobody_but_an_operator_token_calls_the_operators_api(furnished: Furnished) -> None:
    """A token that was revoked, that expired or whose operator is none any more opens nothing, nor
    do an operator's session and the credentials of customers."""
    org, now = furnished.org, timezone.now()
    operator, former = make_operator("owner"), make_operator("catalog")
    revoked, expired, left = make_token(operator), make_token(operator), make_token(former)
    OperatorToken.objects.filter(id=revoked[0].id).update(revoked_at=now)
    OperatorToken.objects.filter(id=expired[0].id).update(expires_at=now)
    User.objects.filter(id=former.id).update(operator_role="")
    callers = {
        "nobody": Client(),
        "operator's session": person(operator),
        "customer's session": person(org.owner),
        "customer's key": key(org, Scope.MANAGE),
        "key for inference": key(org, Scope.INFERENCE),
        "revoked token": bearer_client(revoked[1]),
        "expired token": bearer_client(expired[1]),
        "former operator's token": bearer_client(left[1]),
        "unknown token": bearer_client("pen_op_" + "0" * 36),
    }
    wrong = []
    for label in OPERATORS:
        for name, caller in callers.items():
            reply = furnished.call(caller, label, org)
            challenge = reply.headers.get("www-authenticate", "")
            if reply.status_code != 401 or not challenge.startswith("Bearer"):
                wrong.append(f"{label} {name}: {reply}")
    assert not wrong, "\n".join(wrong)


def test_an_operator_token_calls_nothing_of_customers(furnished: Furnished) -> None:
    caller = operator_client("owner")
    opened = [
        label
        for label in ALLOWED
        if furnished.call(caller, label, furnished.org).status_code != 401
    ]
    assert opened == []

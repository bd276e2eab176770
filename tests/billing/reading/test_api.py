"""The usage and cost API: OpenAI's shapes, one organization at a time."""

import json
from datetime import timedelta
from decimal import Decimal

import pytest
from rest_framework.test import APIClient

from control.accounts.models import User
from control.organizations.models import Membership
from tests.fixtures.organizations import api_of
from tests.fixtures.usage import NOW, add_key, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
USAGE = "/api/v1/organization/usage/completions"
COSTS = "/api/v1/organization/costs"
DAY = int(NOW.replace(hour=0, minute=0).timestamp())
TODAY = {"start_time": DAY, "end_time": DAY + 86_400}


def person_of(customer, role="owner"):
    user = User.objects.create_user(f"{role}@{customer.id.lower()}.test")
    Membership.objects.create(user=user, organization=customer.organization, role=role)
    return api_of(customer.id, user)


def get(client, path, **query):
    answer = client.get(path, {**TODAY, **query})
    assert answer.status_code == 200, answer.content
    return json.loads(answer.content, parse_float=Decimal)


@pytest.fixture
def busy(customer, outsider, price, book):
    """Two requests of the customer by two keys, one of the outsider."""
    callers = (customer, add_key(customer), outsider)
    book(*(make_event(one, price) for one in callers))


def test_usage_of_a_day(busy, customer):
    page = get(person_of(customer), USAGE)
    assert (page["object"], page["has_more"], len(page["data"])) == ("page", False, 1)
    [result] = page["data"][0]["results"]
    assert result["input_tokens"] == 2_000
    assert result["input_cached_tokens"] == 800
    assert result["output_tokens"] == 40
    assert result["num_model_requests"] == 2
    assert result["model"] is None


def test_what_was_refused_is_no_request_of_a_model(customer, price, book):
    outcomes = ("completed", "client_cancelled", "engine_failed", "refused_by_engine", "hedged")
    none = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0}
    book(
        *(
            make_event(customer, price, outcome=one, **none if place > 2 else {})
            for place, one in enumerate(outcomes)
        )
    )
    [result] = get(person_of(customer), USAGE)["data"][0]["results"]
    assert result["num_model_requests"] == 3


@pytest.mark.parametrize(("path", "compatible"), [("usage", USAGE), ("costs", COSTS)])
def test_the_organizations_address_answers_as_the_compatible_one(
    busy, customer, outsider, path, compatible
):
    client = person_of(customer)
    assert get(client, path) == get(client, compatible)
    theirs = f"/api/v1/organizations/{outsider.id}/{path}"
    assert client.get(theirs, TODAY).status_code == 404


def test_costs_are_exact_numbers(busy, customer):
    [bucket] = get(person_of(customer), COSTS)["data"]
    amount = bucket["results"][0]["amount"]
    assert amount == {"value": Decimal("0.000264"), "currency": "usd", "nanos": 264_000}


def test_an_outsider_sees_nothing_of_it(busy, customer, outsider):
    client = person_of(outsider)
    [bucket] = get(client, USAGE, project_ids=customer.project.id)["data"]
    assert bucket["results"] == []
    [mine] = get(client, USAGE)["data"][0]["results"]
    assert mine["num_model_requests"] == 1


@pytest.mark.parametrize("path", [USAGE, COSTS])
def test_another_organizations_id_looks_like_a_missing_one(busy, customer, outsider, path):
    client = person_of(outsider)
    answers = [
        client.get(path, {**TODAY, "organization_id": one}) for one in (customer.id, "org_nowhere")
    ]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].content == answers[1].content


def test_grouped_by_key_and_model(busy, customer):
    page = get(person_of(customer), USAGE, **{"group_by[]": ["api_key_id", "model"]})
    results = page["data"][0]["results"]
    assert {result["model"] for result in results} == {"penstock-demo"}
    assert customer.key.id in {result["api_key_id"] for result in results}
    assert [result["num_model_requests"] for result in results] == [1, 1]


def test_grouped_by_batch_joins_the_other_tiers(customer, price, book):
    tiers = ("default", "flex", "batch")
    book(*(make_event(customer, price, tier=tier) for tier in tiers))
    results = get(person_of(customer), USAGE, group_by="batch")["data"][0]["results"]
    counts = {result["batch"]: result["num_model_requests"] for result in results}
    assert counts == {False: 2, True: 1}


def test_costs_by_line_item_name_the_variant(busy, customer):
    [bucket] = get(person_of(customer), COSTS, group_by="line_item")["data"]
    assert bucket["results"][0]["line_item"] == "penstock-demo:bf16"


def test_pages_cover_the_interval_once(customer, price, book):
    moments = [NOW - timedelta(days=day) for day in range(5)]
    book(*(make_event(customer, price, received_at=at) for at in moments))
    client, query, seen = person_of(customer), {"start_time": DAY - 4 * 86_400, "limit": 2}, []
    while True:
        page = get(client, USAGE, **query)
        seen += page["data"]
        if not page["has_more"]:
            break
        query["page"] = page["next_page"]
    assert [len(bucket["results"]) for bucket in seen] == [1] * 5
    assert len({bucket["start_time"] for bucket in seen}) == 5


def test_an_unknown_model_matches_nothing(busy, customer):
    assert get(person_of(customer), USAGE, models="gpt-9")["data"][0]["results"] == []


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"start_time": "now"}, "start_time"),
        ({"bucket_width": "1y"}, "bucket_width"),
        ({"group_by": "colour"}, "group_by"),
        ({"page": "2"}, "page"),
        ({"limit": 0}, "limit"),
    ],
)
def test_a_bad_parameter_is_named(customer, query, param):
    answer = person_of(customer).get(USAGE, {**TODAY, **query})
    assert answer.status_code == 400
    assert param in answer.json()["error"]["param"]


def test_somebody_without_an_organization_finds_none(db):
    client = APIClient()
    client.force_login(User.objects.create_user("new@nowhere.test"))
    assert client.get(USAGE, TODAY).status_code == 404

"""Spending limits and alerts in the management API: for whoever looks after the money."""

import json

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from billing.alerts.services import choose_percents
from billing.credit.selectors import budget
from control.api_keys.models import ApiKey
from control.audit.models import AuditEvent
from control.errors import ObjectNotFound
from control.feed.models import PublishedChange
from control.limits import spending as limits
from control.permissions import Role
from serving.contract.budget import balance_budget_id, limit_budget_id
from tests.fixtures.organizations import SeededOrganization, make_organization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
LIMITS = "spending-limits"


@pytest.fixture
def org() -> SeededOrganization:
    return make_organization("Acme")


def client_of(org: SeededOrganization, role: str = Role.OWNER) -> APIClient:
    return org.api(role)


def make(client, org, **changes):
    body = {"owner_id": org.id, "period": "day", "limit_nanos": 5 * 10**9, **changes}
    return client.post(LIMITS, body, format="json")


def test_a_limit_is_made_listed_changed_and_removed(org):
    client = client_of(org)
    made = make(client, org, owner_id=org.project.id, alert_percents=[100, 90, 90])
    assert made.status_code == 201
    body = made.json()
    assert body["id"] == f"limit:{org.project.id}:day"
    assert body["owner"] == {
        "kind": "project", "id": org.project.id, "name": org.project.name
    }  # fmt: skip
    assert (body["period"], body["limit_nanos"], body["enforcement"]) == ("day", 5 * 10**9, "hard")
    assert (body["alert_percents"], body["spent_nanos"]) == ([90, 100], 0)
    address = f"{LIMITS}/{body['id']}"
    assert client.get(LIMITS).json()["data"] == [body] == [client.get(address).json()]
    changed = client.patch(address, {"enforcement": "soft", "limit_nanos": 7}, format="json").json()
    assert (changed["enforcement"], changed["limit_nanos"]) == ("soft", 7)
    assert changed["alert_percents"] == [90, 100]
    assert client.delete(address).status_code == 204
    assert client.get(address).status_code == 404
    assert client.get(LIMITS).json()["data"] == []
    actions = AuditEvent.objects.filter(target_id=body["id"]).values_list("action", flat=True)
    assert set(actions) == {"spending_limit.set", "spending_limit.removed", "alert.choose_percents"}


def test_monthly_limits_that_were_there_are_listed(org):
    client = client_of(org)
    client.patch(f"/api/v1/organizations/{org.id}", {"spend_limit_nanos": 9}, format="json")
    [found] = client.get(LIMITS).json()["data"]
    assert (found["id"], found["period"], found["limit_nanos"]) == (f"limit:{org.id}", "month", 9)
    client.patch(f"{LIMITS}/{found['id']}", {"limit_nanos": 11}, format="json")
    assert client.get(f"/api/v1/organizations/{org.id}").json()["spend_limit_nanos"] == 11
    assert make(client, org, period="month").status_code == 409


@pytest.mark.parametrize("owner", ["organization", "project", "key"])
def test_gateways_hold_on_hard_limits_and_not_on_soft_ones(org, owner):
    key, _ = org.mint()
    limited = {"organization": org.id, "project": org.project.id, "key": key.id}[owner]
    client = client_of(org)
    kind = "api_key" if owner == "key" else owner
    for period in ("month", "week", "day"):
        assert make(client, org, owner_id=limited, period=period).status_code == 201

    def published():
        change = (
            PublishedChange.objects.filter(kind=kind, record_id=limited)
            .order_by("-version")
            .first()
        )
        return {n for n in json.loads(change.record)["budget_ids"] if n.startswith("limit:")}

    every = {limit_budget_id(limited, period) for period in ("month", "week", "day")}
    assert published() == every
    client.patch(f"{LIMITS}/limit:{limited}:week", {"enforcement": "soft"}, format="json")
    assert published() == every - {f"limit:{limited}:week"}
    client.delete(f"{LIMITS}/limit:{limited}:day")
    assert published() == {f"limit:{limited}"}


def test_a_row_is_open_as_soon_as_the_limit_is_set(org):
    made = make(client_of(org), org).json()
    row = budget(made["id"], timezone.now())
    assert (row.limit_nanos, row.period) == (5 * 10**9, "day")
    assert made["renews_at"] > made["starts_at"]


def test_an_outsider_limits_nothing_and_chooses_nothing(org):
    client = client_of(org)
    name = make(client, org).json()["id"]
    stranger = make_organization("Outsider")
    for owner in (org.id, org.project.id, org.mint()[0].id):
        assert make(client_of(stranger), org, owner_id=owner).status_code == 404
    for budget_id in (name, balance_budget_id(org.id), "limit:nobody"):
        with pytest.raises(ObjectNotFound):
            choose_percents(
                actor=stranger.actor,
                organization=stranger.organization,
                budget_id=budget_id,
                percents=[1],
            )
    assert client.get(f"{LIMITS}/{name}").json()["alert_percents"] == [50, 80, 100]


def test_of_many_keys_only_those_that_are_limited_are_read(org):
    client = client_of(org)
    [limited, *free] = [org.mint()[0] for _ in range(4)]
    limit_id = make(client, org, owner_id=limited.id).json()["id"]
    make(client, org, owner_id=org.project.id, period="month", enforcement="soft")
    organization = org.organization
    everybody = limits.limit_owners(organization)
    assert limits.spending_limits(organization) == limits.spending_limits(organization, everybody)
    assert [one.limited_id for one in limits.spending_limits(organization)] == [
        org.project.id,
        limited.id,
    ]
    read = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApiKey, "__init__", counted(ApiKey.__init__, read))
        assert limits.spending_limit(organization, limit_id).limited_id == limited.id
        assert limits.spending_limits(organization)
    assert len(read) == 2
    assert len(free) == 3


def counted(made, read):
    """Return a constructor that notes each row it makes."""

    def noted(self, *args, **values):
        read.append(self)
        made(self, *args, **values)

    return noted


@pytest.mark.parametrize(
    "changes",
    [
        {"limit_nanos": -1},
        {"limit_nanos": 2**63},
        {"limit_nanos": "NaN"},
        {"limit_nanos": 1.5},
        {"period": "year"},
        {"enforcement": "medium"},
        {"alert_percents": [0]},
        {"alert_percents": list(range(1, 12))},
        {"spent_nanos": 0},
    ],
)
def test_nonsense_is_refused_by_name_and_changes_nothing(org, changes):
    client = client_of(org)
    reply = make(client, org, **changes)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].split(".")[0] == next(iter(changes))
    assert client.get(LIMITS).json()["data"] == []


def test_an_archived_project_and_a_revoked_key_cannot_be_limited(org):
    client = client_of(org)
    key, _ = org.mint()
    client.post(f"/api/v1/organizations/{org.id}/api-keys/{key.id}/revoke")
    assert make(client, org, owner_id=key.id).status_code == 409


def test_alert_settings_have_defaults_and_can_be_turned_off(org):
    client = client_of(org)
    address = "alert-settings"
    usual = {"low_balance_nanos": None, "low_runway_days": 3, "unusual_factor": 3}
    assert client.get(address).json() == usual
    changed = client.patch(
        address, {"low_balance_nanos": 10**10, "unusual_factor": None}, format="json"
    )
    assert changed.json() == usual | {"low_balance_nanos": 10**10, "unusual_factor": None}
    assert client.get(address).json() == changed.json()
    for bad in ({"low_balance_nanos": 0}, {"low_runway_days": 400}, {"unusual_factor": 1}):
        assert client.patch(address, bad, format="json").status_code == 400


def test_limits_come_in_pages_that_stay_right(org):
    client = client_of(org)
    for period in ("month", "week", "day"):
        for owner in (org.id, org.project.id):
            assert make(client, org, owner_id=owner, period=period).status_code == 201
    whole = client.get(LIMITS).json()
    names = [one["id"] for one in whole["data"]]
    assert (len(names), whole["next"], whole["previous"]) == (6, None, None)
    first = client.get(f"{LIMITS}?limit=2").json()
    second = client.get(first["next"]).json()
    client.delete(f"{LIMITS}/{names[0]}")
    third = client.get(second["next"]).json()
    pages = [first, second, third]
    assert [one["id"] for page in pages for one in page["data"]] == names
    assert third["next"] is None
    assert [one["id"] for one in client.get(third["previous"]).json()["data"]] == names[2:4]
    client.delete(f"{LIMITS}/{names[2]}")  # what a page began with is gone
    assert client.get(first["next"]).status_code == 200
    assert client.get(f"{LIMITS}?after=Zm9v").status_code == 400

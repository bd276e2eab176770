"""A gateway is known by one credential's name: nobody with another speaks for it."""

from typing import Any

import msgspec
import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from control.dataplane.models import GatewayOwner
from serving.contract.codec import encode
from serving.contract.idempotency import (
    ClaimEnding,
    ClaimEndings,
    ClaimGrant,
    ClaimReply,
    IdempotencyClaim,
    StoreResponse,
    StoreResponseReply,
)
from serving.contract.ids import new_id
from serving.contract.lease import LeaseRequest
from serving.contract.limits import GatewayHeartbeat
from serving.contract.usage import UsageBatch
from tests.control.dataplane.test_idempotency import turn_on
from tests.fixtures.credentials import bearer
from tests.fixtures.organizations import SeededOrganization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def call(path: str, record: Any, name: str = "eu-1", number: int = 1) -> Any:
    client = Client(headers=bearer("gateway", name, number))
    return client.post(f"/internal/v1/{path}", encode(record), content_type="application/json")


def claim_of(org: SeededOrganization, gateway_id: str = "gw_1") -> IdempotencyClaim:
    return IdempotencyClaim(new_id(), gateway_id, org.id, "1" * 64, "2" * 64)


def calls_for(gateway_id: str, org: SeededOrganization) -> list[tuple[str, msgspec.Struct]]:
    now, claim = timezone.now(), claim_of(org, gateway_id)
    return [
        ("gateways/heartbeat", GatewayHeartbeat(gateway_id, is_leaving=True)),
        ("gateways/heartbeat", GatewayHeartbeat(gateway_id)),
        ("leases", LeaseRequest(gateway_id, now)),
        ("usage-events", UsageBatch(gateway_id, (), sent_at=now)),
        ("idempotency/claims", claim),
        ("idempotency/responses", StoreResponse(claim, b"sealed")),
    ]


def test_who_lives_first_is_who_a_gateway_is(org: SeededOrganization) -> None:
    turn_on(org)
    assert call("gateways/heartbeat", GatewayHeartbeat("gw_1")).status_code == 200
    for path, record in calls_for("gw_1", org):
        refused = call(path, record, "eu-2")
        assert refused.status_code == 403, path
        assert refused.json()["error"].startswith("gw_1 is the gateway eu-1")
        assert call(path, record).status_code == 200, path


def test_a_number_changes_and_a_name_has_many_gateways(org: SeededOrganization) -> None:
    turn_on(org)
    for gateway_id in ("gw_1", "gw_2"):
        assert call("gateways/heartbeat", GatewayHeartbeat(gateway_id)).status_code == 200
        for path, record in calls_for(gateway_id, org):
            assert call(path, record, number=2).status_code == 200
    assert set(GatewayOwner.objects.values_list("name", flat=True)) == {"eu-1"}


def test_what_a_gateway_of_no_name_left_may_be_told_by_whoever_found_it(
    org: SeededOrganization,
) -> None:
    turn_on(org)
    for path, record in calls_for("gw_1", org)[2:]:
        assert call(path, record, "eu-2").status_code == 200
    assert call("gateways/heartbeat", GatewayHeartbeat("gw_1")).status_code == 200


def test_who_leaves_has_its_name_all_the_same(org: SeededOrganization) -> None:
    call("gateways/heartbeat", GatewayHeartbeat("gw_1"))
    call("gateways/heartbeat", GatewayHeartbeat("gw_1", is_leaving=True))
    assert call("gateways/heartbeat", GatewayHeartbeat("gw_1"), "eu-2").status_code == 403


def test_nobody_ends_or_answers_anothers_claim(org: SeededOrganization) -> None:
    turn_on(org)
    call("gateways/heartbeat", GatewayHeartbeat("gw_1"))
    claim = claim_of(org)
    verdict = call("idempotency/claims", claim).content
    assert msgspec.json.decode(verdict, type=ClaimReply).verdict == ClaimGrant()

    posed = StoreResponse(msgspec.structs.replace(claim, gateway_id="gw_2"), b"forged")
    kept = call("idempotency/responses", posed, "eu-2").content
    assert msgspec.json.decode(kept, type=StoreResponseReply) == StoreResponseReply(is_kept=False)

    endings = ClaimEndings((ClaimEnding(org.id, claim.event_id, is_completed=False),))
    assert call("idempotency/endings", endings, "eu-2").status_code == 403
    assert call("idempotency/endings", endings, number=2).json() == {"changed": 1}


def test_the_database_itself_keeps_names() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT has_table_privilege('dataplane_gateway_owner', 'SELECT')")
        assert cursor.fetchone() == (True,)
        for right in ("UPDATE", "DELETE"):
            cursor.execute("SELECT has_table_privilege('dataplane_gateway_owner', %s)", [right])
            assert cursor.fetchone() == (False,)

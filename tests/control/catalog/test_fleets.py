"""Fleets: what operators set, and the lives of which only the newest is heard."""

import dataclasses
import html
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.contrib import admin
from django.test import Client
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from control.audit.models import AuditEvent
from control.catalog import fleet_admin, fleet_api, fleet_status, fleets, services
from control.catalog.fleet_admin import FleetAdmin
from control.catalog.fleet_api import FleetSerializer
from control.catalog.models import DeploymentState, Fleet
from control.errors import Conflict, InvalidValue, NotPermitted
from control.feed.selectors import last_record
from serving.contract.codec import decode, encode
from serving.contract.fleet import FleetGeneration, FleetHeartbeat, FleetRegistration
from serving.contract.records import DeploymentRecord
from serving.contract.replica import ReplicaRecord
from tests.fixtures.credentials import bearer
from tests.fixtures.operator_tokens import make_operator
from tests.fixtures.organizations import (
    OPERATOR,
    SeededOrganization,
    make_deployment,
    make_model,
    make_variant,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> Fleet:
    return fleets.create_fleet(actor=OPERATOR, id="eu-1", name="Frankfurt", region="eu-central")


def published(deployment_id: str) -> DeploymentRecord:
    record = last_record("deployment", deployment_id)
    assert record is not None
    return decode(record.encode(), DeploymentRecord)


def call(path: str, record: msgspec.Struct, role: str = "fleet", name: str = "fleet") -> Any:
    client = Client(headers=bearer(role, name, 1))
    url = f"/internal/v1/fleets/{path}"
    return client.post(url, encode(record), content_type="application/json")


def generation(path: str, record: msgspec.Struct) -> int:
    reply = call(path, record)
    assert reply.status_code == 200, reply.content
    return decode(reply.content, FleetGeneration).generation


def test_a_deployment_is_of_the_default_fleet_unless_another_is_named(fleet: Fleet) -> None:
    variant = make_variant(make_model())
    record = published(make_deployment(variant).id)
    assert (record.fleet_id, record.region) == ("default", None)
    record = published(make_deployment(variant, fleet=fleet).id)
    assert (record.fleet_id, record.region) == ("eu-1", "eu-central")


def test_a_deployments_fleet_never_changes(fleet: Fleet) -> None:
    deployment = make_deployment(make_variant(make_model()))
    with pytest.raises(InvalidValue, match="fleet cannot be set"):
        services.update_deployment(actor=OPERATOR, deployment=deployment, changes={"fleet": fleet})


def test_a_new_region_applies_to_what_runs(fleet: Fleet) -> None:
    deployment = make_deployment(make_variant(make_model()), fleet=fleet)
    fleets.update_fleet(actor=OPERATOR, fleet=fleet, changes={"region": "eu-west"})
    assert published(deployment.id).region == "eu-west"
    assert AuditEvent.objects.filter(action="fleet.updated", target_id=fleet.id).exists()
    for region in ("EU", "eu west"):
        with pytest.raises(InvalidValue, match="lower-case"):
            fleets.update_fleet(actor=OPERATOR, fleet=fleet, changes={"region": region})


def test_a_fleet_with_deployments_is_not_deleted(fleet: Fleet) -> None:
    deployment = make_deployment(make_variant(make_model()), fleet=fleet)
    with pytest.raises(Conflict, match="has deployments"):
        fleets.delete_fleet(actor=OPERATOR, fleet=fleet)
    deployment.delete()
    fleets.delete_fleet(actor=OPERATOR, fleet=fleet)
    assert not Fleet.objects.filter(id=fleet.id).exists()


def test_customers_set_no_fleets(org: SeededOrganization, fleet: Fleet) -> None:
    with pytest.raises(NotPermitted):
        fleets.create_fleet(actor=org.actor, id="mine", name="Mine")
    with pytest.raises(NotPermitted):
        fleets.update_fleet(actor=org.actor, fleet=fleet, changes={"name": "Mine"})
    with pytest.raises(NotPermitted):
        fleets.delete_fleet(actor=org.actor, fleet=fleet)


def test_each_life_has_the_next_generation_and_only_the_newest_is_heard(fleet: Fleet) -> None:
    assert generation("register", FleetRegistration(fleet.id, "instance_1")) == 1
    assert generation("heartbeat", FleetHeartbeat(fleet.id, "instance_1", 1)) == 1
    assert generation("register", FleetRegistration(fleet.id, "instance_2")) == 2
    refused = call("heartbeat", FleetHeartbeat(fleet.id, "instance_1", 1))
    assert (refused.status_code, refused.json()["code"]) == (409, "fleet_superseded")
    fleet.refresh_from_db()
    registered_at = fleet.registered_at
    assert registered_at is not None
    assert registered_at == fleet.heard_at
    assert generation("heartbeat", FleetHeartbeat(fleet.id, "instance_2", 2)) == 2
    fleet.refresh_from_db()
    assert fleet.registered_at == registered_at
    assert fleet.heard_at is not None
    assert fleet.heard_at > registered_at


def test_an_instance_goes_on_with_what_it_was_granted_before(fleet: Fleet) -> None:
    """Its lives do not overlap, and the answer to a registration may have been lost."""
    for expected in (1, 2):
        assert generation("register", FleetRegistration(fleet.id, "instance_1")) == expected
    assert generation("heartbeat", FleetHeartbeat(fleet.id, "instance_1", 1)) == 2


def test_a_life_that_never_registered_is_not_heard(fleet: Fleet) -> None:
    assert call("heartbeat", FleetHeartbeat(fleet.id, "instance_1", 0)).status_code == 409


def test_a_restored_database_learns_what_it_had_granted(fleet: Fleet) -> None:
    assert generation("heartbeat", FleetHeartbeat(fleet.id, "instance_1", 7)) == 7
    assert generation("heartbeat", FleetHeartbeat(fleet.id, "instance_2", 8)) == 8
    assert call("heartbeat", FleetHeartbeat(fleet.id, "instance_1", 7)).status_code == 409
    assert generation("register", FleetRegistration(fleet.id, "instance_1", last_generation=7)) == 9


def test_generations_go_on_after_a_restore_of_an_earlier_database(fleet: Fleet) -> None:
    assert generation("register", FleetRegistration(fleet.id, "instance_9", last_generation=8)) == 9


MOVES = st.lists(
    st.tuples(
        st.sampled_from(("register", "register", "heartbeat", "backup", "restore")),
        st.sampled_from("abc"),
    ),
    max_size=20,
)


@given(moves=MOVES, order=st.permutations("abc"))
def test_at_most_one_instance_goes_on_once_all_were_heard(
    moves: list[tuple[str, str]], order: list[str]
) -> None:
    """Whatever registers, and whatever backup the database is restored from. An instance holds what
    it was granted until a heartbeat of its own is refused."""
    Fleet.objects.filter(id="any").delete()
    fleets.create_fleet(actor=OPERATOR, id="any", name="Any")
    held: dict[str, int] = {}
    highest: dict[str, int] = {}
    backup = {"generation": 0, "instance_id": ""}
    last = ""

    def beat(instance: str) -> None:
        if instance in held:
            told = FleetHeartbeat("any", instance, held[instance])
            try:
                fleets.record_heartbeat("fleet", told, now=timezone.now())
            except Conflict:
                del held[instance]

    for move, instance in moves:
        if move == "register":
            told = FleetRegistration("any", instance, highest.get(instance, 0))
            granted = fleets.register("fleet", told, now=timezone.now()).generation
            assert granted > highest.get(instance, 0)
            held[instance] = highest[instance] = granted
            last = instance
        elif move == "heartbeat":
            beat(instance)
        elif move == "backup":
            backup = Fleet.objects.values("generation", "instance_id").get(id="any")
        else:
            Fleet.objects.filter(id="any").update(**backup)
    for instance in (*order, *order):
        beat(instance)
    assert len(held) <= 1
    if last and "restore" not in {move for move, _ in moves}:
        assert list(held) == [last]


@pytest.mark.parametrize(
    ("seconds", "state", "words"),
    [
        (None, "never_registered", "Never registered. Start a process with PENSTOCK_FLEET_ID=eu-1"),
        (0, "active", "Active"),
        (180, "silent", "Silent for 3\xa0minutes. Its replicas go on, but none may be started"),
    ],
)
def test_operators_read_whether_a_fleet_is_heard(
    fleet: Fleet, seconds: float | None, state: str, words: str
) -> None:
    if seconds is not None:
        generation("register", FleetRegistration(fleet.id, "instance_1"))
        Fleet.objects.update(heard_at=timezone.now() - timedelta(seconds=seconds))
    fleet.refresh_from_db()
    assert FleetSerializer(fleet).data["state"] == state
    if fleet.heard_at is not None:
        for silence, expected in ((10, "active"), (10.1, "silent")):
            now = fleet.heard_at + timedelta(seconds=silence)
            assert fleets.state(fleet, now=now) == expected
    browser = Client()
    browser.force_login(make_operator("catalog"))
    for page in ("/admin/catalog/fleet/", "/admin/catalog/fleet/eu-1/change/"):
        assert words in html.unescape(browser.get(page).content.decode())


def test_a_fleet_is_added_before_it_registers() -> None:
    refused = call("register", FleetRegistration("unknown", "instance_1"))
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")


def test_a_fleet_belongs_to_the_credential_that_registered_it(fleet: Fleet) -> None:
    assert generation("register", FleetRegistration(fleet.id, "instance_1")) == 1
    for path, record in (
        ("register", FleetRegistration(fleet.id, "instance_2")),
        ("heartbeat", FleetHeartbeat(fleet.id, "instance_1", 1)),
    ):
        assert call(path, record, name="fleet-2").status_code == 403
        assert call(path, record, role="gateway", name="eu-1").status_code == 403
        client = Client()
        url = f"/internal/v1/fleets/{path}"
        assert client.post(url, encode(record), "application/json").status_code == 401
    fleet.refresh_from_db()
    assert fleet.generation == 1


def test_a_silent_fleet_leaves_the_others_known(
    fleet: Fleet, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = make_variant(make_model())
    near = make_deployment(variant, replicas_min=1)
    far = make_deployment(variant, replicas_min=1, fleet=fleet)
    record = ReplicaRecord("rep_1", near.id, "http://r", "ready", 1, timezone.now(), "vllm")
    answers = {"http://near": (1, [record]), "http://far": None}
    urls = {"default": "http://near", fleet.id: "http://far"}
    settings.CONFIG = dataclasses.replace(settings.CONFIG, fleet_urls=urls)
    monkeypatch.setattr(fleet_status, "_read", answers.__getitem__)
    fleet_status.cache.clear()
    status = fleet_status.fleet_status()
    fleet_status.cache.clear()
    assert not status.is_down
    assert near.state(status) == DeploymentState.READY
    assert far.state(status) == DeploymentState.UNKNOWN
    assert status.summary("default", near.id) == "1 ready"
    assert status.summary(fleet.id, far.id).startswith("unknown")
    assert status.generations == {"default": 1}
    assert status.summary("elsewhere", near.id).startswith("unknown"), "nobody asked it"
    monkeypatch.setattr(fleet_api, "fleet_status", lambda: status)
    assert FleetSerializer(near.fleet).data["replica_count"] == 1
    assert FleetSerializer(fleet).data["replica_count"] is None


def test_operators_read_that_an_address_leads_to_an_older_process(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        generation("register", FleetRegistration(fleet.id, "instance_1"))
    fleet.refresh_from_db()
    for found, expected in ((1, "older process responds, of generation 1"), (2, "Active")):
        status = fleet_status.FleetStatus(generations={fleet.id: found})
        monkeypatch.setattr(fleet_admin, "fleet_status", lambda status=status: status)
        text = FleetAdmin(Fleet, admin.site).state(fleet)
        assert expected in text
        assert ("older process" in text) == (found == 1)


def test_the_admin_adds_changes_and_lists_fleets(fleet: Fleet) -> None:
    browser = Client()
    browser.force_login(make_operator("catalog"))
    inline = {"deployments-TOTAL_FORMS": 0, "deployments-INITIAL_FORMS": 0}
    values = {"id": "us-1", "name": "Oregon", "region": "us-west", **inline}
    assert browser.post("/admin/catalog/fleet/add/", values).status_code == 302
    assert Fleet.objects.get(id="us-1").region == "us-west"
    page = browser.get("/admin/catalog/fleet/").content.decode()
    for shown in ("Frankfurt", "eu-central", "Oregon", "Registered", "Generation"):
        assert shown in page
    assert "us-1" in browser.get("/admin/catalog/fleet/us-1/change/").content.decode()

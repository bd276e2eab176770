"""The operator's admin: what it saves goes through services, so that it is published."""

import dataclasses
import json
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from control.accounts.models import User
from control.admin.base import row_url
from control.api_keys.models import ApiKey
from control.audit.models import AuditEvent
from control.catalog import fleet_status
from control.catalog import services as catalog
from control.catalog.models import Deployment, Model, Variant
from control.feed.models import PublishedChange as Published
from control.feed.selectors import last_record
from control.organizations.services import suspension_effects
from control.pricing import services as pricing
from control.pricing.models import PriceBook
from serving.contract.codec import encode
from serving.contract.feed import FeedChange, FeedPage
from serving.contract.replica import ReplicaRecord
from tests.fixtures.html_forms import form_to
from tests.fixtures.operator_tokens import make_operator
from tests.fixtures.organizations import (
    OPERATOR,
    SeededOrganization,
    make_deployment,
    make_model,
    make_variant,
    quality_report,
)
from tests.fixtures.routes import routes

DOLLARS = {
    "input_nanos": "0.15",
    "cached_input_nanos": "0.075",
    "output_nanos": "0.60",
}
METERS = {"input_nanos": 150_000_000, "cached_input_nanos": 75_000_000, "output_nanos": 600_000_000}
PAGES = [
    "limits_spendinglimit",
    "limits_usagetier", "limits_ratelimitoverride", "limits_organizationusagetier",
    "dataplane_gatewayheartbeat",
    "catalog_model", "catalog_variant", "catalog_qualityreport", "catalog_deployment",
    "catalog_fleet",
    "catalog_replicafailure",
    "pricing_pricebook", "organizations_organization", "organizations_project", "accounts_user",
    "api_keys_apikey", "audit_auditevent", "feed_publishedchange",
]  # fmt: skip


@pytest.fixture(autouse=True)
def fresh_fleet_view() -> None:
    fleet_status.cache.clear()


@pytest.fixture
def operator(client: Client, db: None) -> Client:
    client.force_login(User.objects.create_superuser("operator@example.com"))
    return client


@pytest.fixture
def variant(db: None) -> Variant:
    return make_variant(make_model())


@pytest.fixture
def deployment(variant: Variant) -> Deployment:
    return make_deployment(variant)


def change_url(row: Any) -> str:
    label = f"admin:{row._meta.app_label}_{row._meta.model_name}_change"
    return row_url(label, row.pk)


def save(client: Client, row: Any, **changes: Any) -> Any:
    """Send the row's own form back with some fields changed."""
    form = client.get(change_url(row)).context["adminform"].form
    values = {name: form[name].value() for name in form.fields}
    lines = {
        name: "\n".join(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not None
    }
    management = {}
    for formset in client.get(change_url(row)).context["inline_admin_formsets"]:
        prefix = formset.formset.prefix
        management |= {f"{prefix}-TOTAL_FORMS": 0, f"{prefix}-INITIAL_FORMS": 0}
    return client.post(change_url(row), lines | management | changes)


def decide(book: PriceBook, verb: str) -> str:
    """Return the address where a price book is published or cancelled."""
    return row_url(f"admin:pricing_pricebook_{verb}", book.pk)


def act(client: Client, row: Any, action: str) -> str:
    """Choose an action for a row in its list; return the page that follows."""
    url = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_changelist")
    return client.post(
        url, {"action": action, "_selected_action": row.pk}, follow=True
    ).content.decode()


@pytest.mark.parametrize("page", PAGES)
def test_every_list_opens(
    operator: Client, org: SeededOrganization, key: ApiKey, deployment: Deployment, page: str
) -> None:
    catalog.record_quality(actor=OPERATOR, variant=deployment.variant, document=quality_report())
    pricing.draft_book(actor=OPERATOR, name="Draft")
    assert operator.get(reverse(f"admin:{page}_changelist")).status_code == 200


@pytest.mark.parametrize(
    ("query", "words"),
    [("", "No price books yet"), ("?q=none", "Nothing matches your search and filters")],
)
def test_an_empty_list_says_why(operator: Client, query: str, words: str) -> None:
    page = operator.get(reverse("admin:pricing_pricebook_changelist") + query).text
    assert words in page
    assert ("Reset search" in page) == bool(query)


def test_the_first_page_counts(operator: Client, org: SeededOrganization, key: ApiKey) -> None:
    page = operator.get("/admin/").content.decode()
    assert "Organizations" in page
    assert "the fleet does not respond" in page


def test_every_page_of_a_row_opens(
    operator: Client, org: SeededOrganization, key: ApiKey, deployment: Deployment
) -> None:
    catalog.record_quality(actor=OPERATOR, variant=deployment.variant, document=quality_report())
    rows = [deployment, deployment.variant, deployment.variant.model, org.organization, key,
            org.owner, AuditEvent.objects.first()]  # fmt: skip
    for row in rows:
        assert operator.get(change_url(row)).status_code == 200


def test_no_address_of_the_admin_opens_to_a_member(client: Client, org: SeededOrganization) -> None:
    client.force_login(org.owner)
    opened = []
    for route in routes("admin"):
        for method in ("get", "post"):
            reply = getattr(client, method)(route.path({}))
            where = urlsplit(reply.headers.get("location", "")).path
            is_led = where in ("/admin/login/", "/admin/")
            if reply.status_code not in (403, 404, 405) and not is_led:
                opened.append(f"{method} {route.template}: {reply.status_code} {where}")
    assert not opened, "\n".join(opened)


def test_members_see_no_admin(client: Client, org: SeededOrganization) -> None:
    client.force_login(org.owner)
    assert client.get("/admin/").status_code == 302


def test_raising_replicas_from_zero_is_published(operator: Client, deployment: Deployment) -> None:
    reply = save(operator, deployment, replicas_min=1)
    record = json.loads(last_record("deployment", deployment.id) or "")
    assert reply.status_code == 302
    assert record["replicas_min"] == 1
    assert AuditEvent.objects.filter(action="deployment.updated", target_id=deployment.id).exists()


def test_the_cost_of_a_replica_is_typed_in_dollars_and_stays_here(
    operator: Client, deployment: Deployment
) -> None:
    before = last_record("deployment", deployment.id)
    assert save(operator, deployment, hourly_cost_nanos="2.49").status_code == 302
    deployment.refresh_from_db()
    assert deployment.hourly_cost_nanos == 2_490_000_000
    assert last_record("deployment", deployment.id) == before
    assert Published.objects.filter(kind="deployment", record_id=deployment.id).count() == 1
    assert AuditEvent.objects.filter(action="deployment.updated", target_id=deployment.id).exists()


def test_saving_nothing_publishes_nothing(operator: Client, deployment: Deployment) -> None:
    before = AuditEvent.objects.count()
    assert save(operator, deployment).status_code == 302
    assert AuditEvent.objects.count() == before


def test_a_bad_size_is_an_error_on_the_page(operator: Client, deployment: Deployment) -> None:
    assert save(operator, deployment, replicas_min=5).status_code == 200
    deployment.refresh_from_db()
    assert deployment.replicas_min == 0


def test_engine_arguments_come_one_per_line(operator: Client, deployment: Deployment) -> None:
    save(operator, deployment, engine_arguments='--a={"x": 1, "y": 2}\r\n\r\n--b\r\n')
    deployment.refresh_from_db()
    assert deployment.engine_arguments == ['--a={"x": 1, "y": 2}', "--b"]


def test_a_model_is_added_and_closed_to_others(operator: Client, org: SeededOrganization) -> None:
    form = {"public_id": "new", "name": "New", "description": "", "organization_ids": org.id}
    form |= {"task": "embed"}
    inline = {"variants-TOTAL_FORMS": 0, "variants-INITIAL_FORMS": 0}
    assert operator.post(reverse("admin:catalog_model_add"), form | inline).status_code == 302
    model = Model.objects.get()
    assert (model.organization_ids, model.task) == ([org.id], "embed")
    for number, (switch, open_to) in enumerate((("", []), ("on", None))):
        names = {"public_id": f"new-{number}", "organization_ids": "", "is_open_to_all": switch}
        operator.post(reverse("admin:catalog_model_add"), form | inline | names)
        assert Model.objects.get(public_id=f"new-{number}").organization_ids == open_to
    steps: list[tuple[dict[str, str], list[str] | None]] = [
        ({"organization_ids": "", "task": "generate"}, []),
        ({"name": "Hidden"}, []),
        ({"is_open_to_all": "on"}, None),
        ({"organization_ids": org.id}, None),  # refused: it would have no effect
        ({"is_open_to_all": ""}, []),
        ({"organization_ids": org.id}, [org.id]),
    ]
    for changes, open_to in steps:
        save(operator, model, **changes)
        model.refresh_from_db()
        assert (model.organization_ids, model.task) == (open_to, "embed")


def test_a_refusal_is_a_message(operator: Client, variant: Variant) -> None:
    assert "is the default" in act(operator, variant, "withdraw")


def test_a_price_book_is_filled_and_published(operator: Client, variant: Variant) -> None:
    book = pricing.draft_book(actor=OPERATOR, name="Draft")
    row = {f"prices-0-{name}": value for name, value in DOLLARS.items()}
    row |= {"prices-0-variant": variant.id, "prices-0-tier": "default", "prices-0-book": book.id}
    row |= {"prices-0-input_tokens_min": 0}
    save(operator, book, **row, **{"prices-TOTAL_FORMS": 1})
    price = book.prices.get()
    page = operator.post(decide(book, "publish"), {"effective_at_0": "", "effective_at_1": ""})
    assert page.status_code == 302
    assert last_record("price", price.id) is not None
    assert AuditEvent.objects.filter(action="price_book.price_set").exists()


def test_an_id_that_reads_like_a_quoted_character_leads_back_to_its_page(
    operator: Client, variant: Variant
) -> None:
    book = PriceBook.objects.create(id="book_3Fold", name="Old")
    pricing.set_price(actor=OPERATOR, book=book, variant=variant, **METERS)
    moment = {"effective_at_0": "", "effective_at_1": ""}
    done = operator.post(decide(book, "publish"), moment, follow=True)
    assert (done.status_code, done.context["original"]) == (200, book)


def test_the_publish_page_shows_old_and_new_and_asks_for_words(
    operator: Client, variant: Variant
) -> None:
    first = pricing.draft_book(actor=OPERATOR, name="First")
    pricing.set_price(actor=OPERATOR, book=first, variant=variant, **METERS)
    pricing.publish_book(actor=OPERATOR, book=first)
    book = pricing.draft_book(actor=OPERATOR, name="Summer")
    dear = METERS | {"output_nanos": 6_000_000_000}
    pricing.set_price(actor=OPERATOR, book=book, variant=variant, **dear)
    page = operator.get(decide(book, "publish")).content.decode()
    sentence = "publish Summer with 1 unusual price"
    assert all(each in page for each in ("$0.60", "$6.00", "unusual", sentence))
    empty = {"effective_at_0": "", "effective_at_1": ""}
    refused = operator.post(decide(book, "publish"), empty | {"confirmation": "yes"})
    assert "type as confirmation" in refused.content.decode()
    assert not PriceBook.objects.get(id=book.id).is_published
    operator.post(decide(book, "publish"), empty | {"confirmation": sentence})
    assert PriceBook.objects.get(id=book.id).is_published


def test_only_the_prices_that_were_shown_are_published(operator: Client, variant: Variant) -> None:
    book = pricing.draft_book(actor=OPERATOR, name="Summer")
    pricing.set_price(actor=OPERATOR, book=book, variant=variant, **METERS)
    url = decide(book, "publish")
    older = form_to(operator.get(url).content, url).values
    pricing.set_price(
        actor=OPERATOR, book=book, variant=variant, **METERS | {"output_nanos": 610_000_000}
    )
    refused = operator.post(url, older)
    assert refused.status_code == 409
    assert "$0.61" in refused.content.decode()
    assert not PriceBook.objects.get().is_published
    assert operator.post(url, form_to(refused.content, url).values).status_code == 302
    assert PriceBook.objects.get().is_published


def test_a_moment_in_the_past_is_an_error_on_the_page(operator: Client, variant: Variant) -> None:
    book = pricing.draft_book(actor=OPERATOR, name="Late")
    pricing.set_price(actor=OPERATOR, book=book, variant=variant, **METERS)
    moment = {"effective_at_0": "2020-01-01", "effective_at_1": "00:00:00"}
    reply = operator.post(decide(book, "publish"), moment)
    assert "must not be in the past" in reply.content.decode()
    wrong = operator.post(decide(book, "publish"), moment | {"effective_at_0": "soon"})
    assert "Enter a valid date" in wrong.content.decode()


def test_a_book_to_come_is_cancelled_on_a_page_of_its_own(
    operator: Client, variant: Variant
) -> None:
    book = pricing.draft_book(actor=OPERATOR, name="Later")
    pricing.set_price(actor=OPERATOR, book=book, variant=variant, **METERS)
    assert operator.get(decide(book, "cancel")).status_code == 403
    pricing.publish_book(
        actor=OPERATOR, book=book, effective_at=timezone.now() + timedelta(hours=1)
    )
    assert operator.get(decide(book, "publish")).status_code == 403
    assert operator.get(decide(book, "cancel")).status_code == 200
    assert not PriceBook.objects.get().is_cancelled
    assert operator.post(decide(book, "cancel")).status_code == 302
    assert PriceBook.objects.get().is_cancelled


@pytest.mark.parametrize("verb", ["publish", "cancel"])
def test_members_decide_no_price_books(client: Client, org: SeededOrganization, verb: str) -> None:
    client.force_login(org.owner)
    book = pricing.draft_book(actor=OPERATOR, name="Draft")
    assert client.post(decide(book, verb)).status_code == 302
    assert not PriceBook.objects.get().is_published


def test_a_price_moved_to_another_band_leaves_none_behind(
    operator: Client, variant: Variant
) -> None:
    book = pricing.draft_book(actor=OPERATOR, name="Draft")
    price = pricing.set_price(actor=OPERATOR, book=book, variant=variant, **METERS)
    row = {f"prices-0-{name}": value for name, value in DOLLARS.items()}
    row |= {"prices-0-variant": variant.id, "prices-0-tier": "flex", "prices-0-book": book.id}
    row |= {"prices-0-id": price.id, "prices-0-input_tokens_min": 200}
    save(operator, book, **row, **{"prices-TOTAL_FORMS": 1, "prices-INITIAL_FORMS": 1})
    moved = book.prices.get()
    assert (moved.tier, moved.input_tokens_min) == ("flex", 200)
    assert (moved.input_nanos, moved.output_nanos) == (150_000_000, 600_000_000)


def test_a_published_book_is_looked_at_only(operator: Client, variant: Variant) -> None:
    book = pricing.draft_book(actor=OPERATOR, name="Draft")
    pricing.set_price(actor=OPERATOR, book=book, variant=variant, **METERS)
    pricing.publish_book(actor=OPERATOR, book=book)
    assert operator.post(change_url(book), {"name": "New"}).status_code == 403
    assert PriceBook.objects.get().name == "Draft"


def test_keys_are_looked_at_and_revoked(operator: Client, key: ApiKey) -> None:
    page = operator.get(change_url(key)).content.decode()
    assert key.digest not in page
    assert operator.post(change_url(key), {"name": "New"}).status_code == 403
    assert "is revoked" in act(operator, key, "revoke")
    assert last_record("api_key", key.id) is None


def test_an_organization_is_suspended_and_resumed(
    operator: Client, org: SeededOrganization
) -> None:
    suspend, resume = (
        row_url(f"admin:organizations_organization_{verb}", org.id)
        for verb in ("suspend", "resume")
    )
    assert operator.get(resume).status_code == 403
    page = operator.get(suspend)
    effects = [effect for (effect,) in page.context["table"]["rows"]]
    assert effects == suspension_effects(org.organization)
    assert effects[0] in page.content.decode()
    assert operator.post(suspend, {"reason": " "}).status_code == 200
    assert json.loads(last_record("organization", org.id) or "")["status"] == "active"
    assert operator.post(suspend, {"reason": "Unpaid card charges"}).status_code == 302
    assert json.loads(last_record("organization", org.id) or "")["status"] == "suspended"
    assert "Unpaid card charges" in operator.get(change_url(org.organization)).content.decode()
    assert operator.get(suspend).status_code == 403
    assert operator.post(resume, {"reason": "Paid"}).status_code == 302
    assert json.loads(last_record("organization", org.id) or "")["status"] == "active"


def test_an_organizations_terms_are_published(operator: Client, org: SeededOrganization) -> None:
    save(operator, org.organization, weight=3, name="Renamed")
    org.organization.refresh_from_db()
    assert (org.organization.name, org.organization.weight) == ("Renamed", 3)
    assert json.loads(last_record("organization", org.id) or "")["weight"] == 3


def test_a_limit_that_stops_work_is_confirmed(operator: Client, org: SeededOrganization) -> None:
    asked = save(operator, org.organization, spend_limit_nanos="0")
    page = asked.content.decode()
    assert "every request of Acme is refused" in page
    assert 'name="confirmed_nanos"' in page
    for confirmed in ("7", ""):
        reply = save(operator, org.organization, spend_limit_nanos="0", confirmed_nanos=confirmed)
        assert reply.status_code == 200
    reply = save(operator, org.organization, spend_limit_nanos="0", confirmed_nanos="0")
    org.organization.refresh_from_db()
    assert (reply.status_code, org.organization.spend_limit_nanos) == (302, 0)


def test_what_a_service_refuses_stays_in_the_form(client: Client, org: SeededOrganization) -> None:
    client.force_login(make_operator("support"))
    refused = save(client, org.organization, name="Renamed", weight=3)
    form = refused.context["adminform"].form
    assert (form["name"].value(), form["weight"].value()) == ("Renamed", "3")
    assert "permission" in str(form.non_field_errors()), form.errors
    org.organization.refresh_from_db()
    assert (org.organization.name, org.organization.weight) == ("Acme", 1)


def test_nothing_is_deleted(operator: Client, deployment: Deployment, key: ApiKey) -> None:
    for row in (deployment, key):
        url = change_url(row).replace("change", "delete")
        assert operator.post(url, {"post": "yes"}).status_code == 403


class FakeFleet(BaseHTTPRequestHandler):
    """Answers `/replicas` with one ready replica per deployment it is told of."""

    deployments: tuple[str, ...] = ()

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == f"Bearer {settings.CONFIG.credential}"
        replicas = [
            ReplicaRecord(f"rep_{each}", each, "http://h", "ready", 8, timezone.now(), "simulated")
            for each in self.deployments
        ]
        changes = tuple(
            FeedChange(1, "replica", each.replica_id, encode_raw(each)) for each in replicas
        )
        body = encode(FeedPage(1, True, changes))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def encode_raw(record: ReplicaRecord) -> Any:
    return msgspec.Raw(encode(record))


@pytest.mark.integration
def test_live_replicas_are_the_fleets_word(
    operator: Client, deployment: Deployment, settings: Any
) -> None:
    server = HTTPServer(("127.0.0.1", 0), FakeFleet)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    FakeFleet.deployments = (deployment.id,)
    url = f"http://127.0.0.1:{server.server_port}"
    settings.CONFIG = dataclasses.replace(settings.CONFIG, fleet_urls={"default": url})
    try:
        page = operator.get(change_url(deployment)).content.decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert "1 ready" in page
    assert f"rep_{deployment.id}" in page


def test_the_first_pages_figures_link_to_what_they_count(operator: Client) -> None:
    page = operator.get(reverse("admin:index"))
    for title, _, address in page.context["figures"]:
        assert operator.get(address).status_code == 200, title
        assert f'href="{address}"' in page.content.decode()


def test_a_silent_fleet_is_said_to_be_silent(operator: Client, deployment: Deployment) -> None:
    page = operator.get(change_url(deployment)).content.decode()
    assert "the fleet does not respond" in page

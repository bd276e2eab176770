"""The models page shows an organization what it pays itself: its contract's, band by band."""

from types import SimpleNamespace

import pytest
from django.test import Client

from control.catalog import fleet_status
from control.catalog import services as services_of_catalog
from control.catalog.fleet_status import FleetStatus
from control.catalog.models import Deployment
from control.pricing import services
from control.pricing.models import Price
from tests.fixtures.console import make_embedder
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from web.console.base import address

pytestmark = pytest.mark.integration


@pytest.fixture
def contract(org: SeededOrganization, prices: dict[str, Price]) -> Price:
    """$0.13, $0.05 and $0.50 of the tenant's own, and $0.1501 of input from 1,000 tokens."""
    book = services.draft_book(actor=OPERATOR, name="Own", organization=org.organization)
    meters = {"cached_input_nanos": 50_000_000, "output_nanos": 500_000_000}
    for floor, nanos in ((0, 130_000_000), (1_000, 150_100_000)):
        services.set_price(
            actor=OPERATOR, book=book, variant=prices["bf16"].variant,
            input_tokens_min=floor, input_nanos=nanos, **meters,
        )  # fmt: skip
    services.publish_book(actor=OPERATOR, book=book)
    return book.prices.get(input_tokens_min=0)


def shown(client: Client, org: SeededOrganization) -> str:
    reply = client.get(address(org.organization, "models"))
    assert reply.status_code == 200
    return reply.content.decode()


def test_a_contract_is_shown_with_its_bands(
    member: Client, org: SeededOrganization, contract: Price
) -> None:
    page = shown(member, org)
    for words in ("$0.13", "from 1,000 input tokens", "$0.1501", "by your contract"):
        assert words in page


def test_an_outsider_sees_list_prices_alone(
    stranger: Client, outsider: SeededOrganization, contract: Price
) -> None:
    page = shown(stranger, outsider)
    assert "$0.15<" in page
    for words in ("$0.13", "input tokens</p>", "by your contract"):
        assert words not in page


def test_a_model_for_embeddings_says_so_and_has_no_price_of_output(
    member: Client, org: SeededOrganization, prices: dict[str, Price]
) -> None:
    before = shown(member, org)
    make_embedder()
    page = shown(member, org)
    for words in (
        '<span class="badge">Embeddings</span>',
        "256 dimensions",
        "Longest input",
        ">$0.02<",
    ):
        assert words in page
        assert words not in before
    assert page.count("<span>Output</span>") == before.count("<span>Output</span>")
    assert "model=penstock-demo-embed#embeddings" in page


def test_the_playground_shows_the_first_call_and_offers_only_models_that_talk(
    member: Client, org: SeededOrganization, prices: dict[str, Price]
) -> None:
    url = address(org.organization, "playground")
    assert 'id="embeddings"' not in member.get(url).content.decode()
    make_embedder()
    page = member.get(url).content.decode()
    assert '<option value="penstock-demo"' in page
    assert '<option value="penstock-demo-embed"' not in page
    for words in (
        "/v1/embeddings",
        "client.embeddings.create(",
        "$0.02 per million",
        "256 dimensions",
    ):
        assert words in page
    overview = member.get(address(org.organization, "overview")).content.decode()
    assert "/embeddings" not in overview


def test_an_outsider_sees_no_embedder_that_is_not_theirs(
    stranger: Client,
    outsider: SeededOrganization,
    org: SeededOrganization,
    prices: dict[str, Price],
) -> None:
    model = make_embedder().variant.model
    services_of_catalog.update_model(
        actor=OPERATOR, model=model, changes={"organization_ids": [org.organization.id]}
    )
    assert "penstock-demo-embed" not in shown(stranger, outsider)
    playground = stranger.get(address(outsider.organization, "playground")).content.decode()
    assert "penstock-demo-embed" not in playground


@pytest.mark.parametrize(
    ("state", "is_running"),
    [("ready", True), ("asleep", True), ("loading", False), ("failed", False), ("down", True)],
)
def test_a_model_runs_while_a_replica_serves_it(
    request: pytest.FixtureRequest, prices: dict[str, Price], monkeypatch, state, is_running
) -> None:
    deployments = [
        Deployment.objects.create(variant=each.variant, engine="simulated", replicas_min=1)
        for each in prices.values()
    ]
    replicas = tuple(SimpleNamespace(deployment_id=each.id, state=state) for each in deployments)
    fleet = FleetStatus(replicas, is_down=state == "down")
    fleet_status.cache.clear()
    monkeypatch.setattr(fleet_status, "_poll", lambda: fleet)
    page = shown(request.getfixturevalue("member"), request.getfixturevalue("org"))
    assert (">Not running<" in page) != is_running

"""How much every page of the console asks of the database, and of the line: none is left out."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing.reading.selectors import recent_events
from control.budgets.services import add_limit
from control.keys.models import ApiKey
from control.prices.models import Price
from control.tenants.models import Membership
from control.webhooks.services import create_endpoint, send_test
from serving.contract.ids import new_id
from tests.fixtures.organizations import SeededOrganization
from web.console.page import address
from web.console.urls import urlpatterns

pytestmark = pytest.mark.integration

QUERIES_MAX = 10
OVERVIEW_QUERIES_MAX = 8
BYTES_MAX = 100_000
"""Of a page with all it loads, compressed, for somebody who comes the first time."""
CHART_LIBRARY = "unfold/js/chart/chart.js"
NO_PAGES = {
    "home": "leads to the overview",
    "invitation": "belongs to no organization",
    "theme": "is sent",
    "personal_data": "belongs to no organization: test_personal_data.py asks it",
    "personal_data_copy": "is sent",
    "personal_data_erase": "is sent",
    "personal_data_download": "is a file",
    "playground_stream": "is sent",
    "key_edit": "is sent",
    "key_rotate": "is sent",
    "key_end_old": "is sent",
    "key_secret": "shows a secret once",
    "key_revoke": "is sent",
    "limit_alerts": "is sent",
    "limit_remove": "is sent",
    "billing_top_up": "is sent",
    "billing_automatic": "is sent",
    "billing_code": "is sent",
    "billing_saved": "is the way back from Stripe",
    "billing_payment": "is weighed where there is one",
    "billing_method_new": "is sent",
    "billing_method_default": "is sent",
    "billing_method_remove": "is sent",
    "settings_idempotency": "is sent",
    "settings_rename": "is sent",
    "settings_delete": "counts all that would end",
    "organization_new": "belongs to no organization",
    "project_rename": "is sent",
    "project_origins": "is sent",
    "project_archive": "is sent",
    "project_restore": "is sent",
    "team_invite": "is sent",
    "invitation_renew": "is sent",
    "invitation_withdraw": "is sent",
    "member_role": "is sent",
    "member_remove": "is sent",
    "sso_oidc": "is sent",
    "sso_saml": "is sent",
    "sso_remove": "is sent",
    "sso_domain_add": "is sent",
    "sso_domain_verify": "is sent",
    "sso_domain_remove": "is sent",
    "sso_roles": "is sent",
    "sso_enforce": "is sent",
    "sso_forget": "is sent",
    "scim_token": "is sent",
    "scim_end": "is sent",
    "scim_heir": "is sent",
    "webhook_update": "is sent",
    "webhook_switch": "is sent",
    "webhook_rotate": "is sent",
    "webhook_test": "is sent",
    "webhook_delete": "is sent",
    "webhook_redeliver": "is sent",
    "running_pdf": "is a document, made when it is asked for",
    "invoice": "is weighed where there is one",
    "invoice_pay": "is sent",
    "invoice_pdf": "is weighed where there is one",
    "credit_note_pdf": "is weighed where there is one",
}
PAGES = [one.name for one in urlpatterns if one.name not in NO_PAGES]

PageUrl = Callable[..., str]


@pytest.fixture
def page_url(org: SeededOrganization, key: ApiKey, prices: dict[str, Price]) -> PageUrl:
    """Return the address of a page, or of its newest key or request where it is of one."""

    def of(name: str, **parameters: str) -> str:
        newest = recent_events(org.organization, now=timezone.now(), limit=1)
        event_id = str(newest[0].event_id) if newest else new_id()
        seat = Membership.objects.get(organization=org.organization)
        of_one = {"key": [key.id], "receipt": [event_id], "member": [seat.id]}
        of_one["project"] = [org.project.id]
        if name == "limit":
            of_one["limit"] = [limited(org)]
        if name in ("webhook", "webhook_delivery"):
            endpoint, delivery = told(org)
            of_one |= {"webhook": [endpoint], "webhook_delivery": [endpoint, delivery]}
        return address(org.organization, name, *of_one.get(name, []), **parameters)

    return of


def limited(org: SeededOrganization) -> str:
    """Return the budget of a limit that is set."""
    made = add_limit(
        actor=org.actor,
        organization=org.organization,
        owner_id=org.organization.id,
        period="day",
        limit_nanos=10**9,
        is_hard=False,
        now=timezone.now(),
    )
    return made.budget_id


def told(org: SeededOrganization) -> tuple[str, str]:
    """Return an endpoint that was sent a few messages, and the last of them."""
    endpoint, _ = create_endpoint(
        actor=org.actor,
        organization=org.organization,
        url="https://example.com/hooks",
        kinds=["key.created"],
    )
    now = timezone.now()
    for _ in range(3):
        delivery = send_test(actor=org.actor, endpoint=endpoint, now=now)
    return endpoint.id, delivery.id


def assert_few_queries(member: Client, name: str, url: str) -> None:
    if name == "playground":
        member.get(url)  # the first visit of all makes the member's key
    with CaptureQueriesContext(connection) as asked:
        reply = member.get(url)
        body = b"".join(reply) if reply.streaming else reply.content
    queries = [one["sql"] for one in asked if "SAVEPOINT" not in one["sql"]]
    queries_max = OVERVIEW_QUERIES_MAX if name == "overview" else QUERIES_MAX
    assert len(queries) <= queries_max, queries
    assert body or name == "requests_jsonl"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_the_database_little(
    member: Client, traffic: None, page_url: PageUrl, name: str
) -> None:
    assert_few_queries(member, name, page_url(name))


@pytest.mark.parametrize("name", PAGES)
def test_so_it_does_for_a_project(
    member: Client, org: SeededOrganization, traffic: None, page_url: PageUrl, name: str
) -> None:
    assert_few_queries(member, name, page_url(name, project=org.project.id))


@pytest.mark.parametrize("name", PAGES)
def test_so_it_does_for_who_has_just_come(member: Client, page_url: PageUrl, name: str) -> None:
    assert_few_queries(member, name, page_url(name))


@pytest.mark.parametrize("name", [name for name in PAGES if "_" not in name])
def test_a_page_is_light_with_all_it_loads(
    member: Client, traffic: None, page_url: PageUrl, name: str
) -> None:
    page = member.get(page_url(name)).content
    files = set(re.findall(r'(?:src|href)="/static/([^"#]+)', page.decode())) - {CHART_LIBRARY}
    assert files
    weights = {name: len(gzip.compress(page))} | {file: compressed(file) for file in files}
    assert sum(weights.values()) < BYTES_MAX, weights


def compressed(file: str) -> int:
    """Return the size of a static file as it is sent."""
    path = finders.find(file)
    assert path, file
    return len(gzip.compress(Path(path).read_bytes()))

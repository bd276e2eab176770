"""A member of the largest organization looks at one page after the other."""

import gzip
import time
from datetime import timedelta

from django.db import connection
from django.test import Client
from django.utils import timezone

from control.accounts.models import User
from control.organizations.models import Membership, Organization
from control.permissions import Role
from tests.benchmarks.books.deeds.statements import counted
from tests.benchmarks.books.deeds.world import callers
from tests.benchmarks.books.results import Seen
from tests.benchmarks.failure import BenchmarkFailed
from web.console.base import address

WARM_UP = 3
PAGES = ("overview", "usage", "requests", "keys", "models")
COSTS = "/api/v1/organization/costs"
USAGE = "/api/v1/organization/usage/completions"


def browse(visits: int) -> list[Seen]:
    """Visit every page so many times; return what was seen of each."""
    organization = Organization.objects.get(id=callers()[0].organization_id)
    client = _member(organization)
    return [look(client, name, url, visits) for name, url in _addresses(organization).items()]


def _member(organization: Organization) -> Client:
    user, _ = User.objects.get_or_create(email="reader@example.com")
    Membership.objects.get_or_create(
        user=user, organization=organization, defaults={"role": Role.OWNER}
    )
    client = Client()
    client.force_login(user)
    return client


def _addresses(organization: Organization) -> dict[str, str]:
    """Return each page, the usage page's longest question, and both APIs over 31 days or so."""
    month_ago = int((timezone.now() - timedelta(days=30)).timestamp())
    week_ago = int((timezone.now() - timedelta(days=7)).timestamp())
    longest = {"from": str(timezone.now().date() - timedelta(days=89)), "group": "key"}
    of = f"organization_id={organization.id}"
    costs = f"{COSTS}?{of}&start_time={month_ago}&limit=31"
    return {
        **{name: address(organization, name) for name in PAGES},
        "usage, 90 days by key": address(organization, "usage", **longest),
        "costs API, 30 days": costs,
        "costs API by line item": f"{costs}&group_by=line_item",
        "usage API, 168 hours by key": f"{USAGE}?{of}&start_time={week_ago}&bucket_width=1h"
        "&limit=168&group_by=api_key_id",
    }


def look(client: Client, name: str, url: str, visits: int) -> Seen:
    """Visit a page so many times; return what was seen. Raises BenchmarkFailed."""
    for _ in range(WARM_UP):
        client.get(url)
    milliseconds = []
    for _ in range(visits):
        began = time.perf_counter()
        reply = client.get(url)
        milliseconds.append((time.perf_counter() - began) * 1000)
    with counted(connection) as statements:
        reply = client.get(url)
    if reply.status_code != 200 or not reply.content:
        raise BenchmarkFailed(f"{url} answered {reply.status_code}")
    return Seen(name, milliseconds, len(statements), len(gzip.compress(reply.content)))

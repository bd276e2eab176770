"""How much every page of the cockpit asks of the database: none that the admin's table of addresses
has is left out, with rows to show and without."""

from collections.abc import Iterator
from http import HTTPStatus

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import NoReverseMatch, URLPattern, URLResolver, reverse

from billing.collection.services.looking import look
from control.accounts.models import User
from tests.fixtures.collecting import day
from tests.fixtures.debts import make_debts

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]

QUERIES_MAX = 10
PAGES_MIN = 60
"""There are more: a table that yields fewer is not read right."""
NO_PAGES = {
    "jsi18n": "is a script",
    "logout": "is sent",
    "login": "is for who has no session",
    "password_change": "leads to the account's own page",
    "autocomplete": "answers a form",
}


def names(patterns: list[URLPattern | URLResolver]) -> Iterator[str]:
    """Yield the name of every address that a table has."""
    for one in patterns:
        if isinstance(one, URLResolver):
            yield from names(one.url_patterns)
        elif one.name and one.name not in NO_PAGES:
            yield one.name


def address(name: str, *arguments: object) -> str | None:
    try:
        return reverse(f"admin:{name}", args=arguments)
    except NoReverseMatch:
        return None


PAGES = sorted({name for name in names(admin.site.get_urls()) if address(name)})


@pytest.fixture
def operator(transactional_db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("operator@penstock.test"))
    return client


@pytest.fixture
def busy() -> None:
    """Months of invoices, payments and grants, and who is overdue."""
    make_debts()
    for number in (0, 3, 10):
        look(now=day(number))


def queries(client: Client, url: str) -> list[str]:
    """Return what a page asks the database; nothing where it is nobody's."""
    asked = _asked(client, url)
    if len(asked) > QUERIES_MAX:
        asked = _asked(client, url)  # a process caches what never changes
    return asked


def _asked(client: Client, url: str) -> list[str]:
    with CaptureQueriesContext(connection) as asked:
        reply = client.get(url)
    assert reply.status_code in (HTTPStatus.OK, HTTPStatus.FORBIDDEN), (url, reply.status_code)
    is_shown = reply.status_code == HTTPStatus.OK
    return [one["sql"] for one in asked if is_shown and "SAVEPOINT" not in one["sql"]]


def pages_of_rows() -> Iterator[tuple[str, str]]:
    """Yield the page of a row of each kind that there is."""
    for model in admin.site._registry:
        row = model._default_manager.first()
        name = f"{model._meta.app_label}_{model._meta.model_name}_change"
        if row is not None and (url := address(name, quote(row.pk))):
            yield name, url


@pytest.mark.full
def test_no_page_asks_much(operator: Client, busy: None) -> None:
    """All in one test: it is the rows that take long to make."""
    pages = {name: url for name in PAGES if (url := address(name))} | dict(pages_of_rows())
    asked = {name: queries(operator, url) for name, url in pages.items()}
    assert len([name for name, many in asked.items() if many]) > PAGES_MIN, asked.keys()
    assert {name: len(many) for name, many in asked.items() if len(many) > QUERIES_MAX} == {}

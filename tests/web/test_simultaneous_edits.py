"""Of several saves of one version in the same instant one passes; the others are told."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connections

from tests.fixtures.html_forms import form_to
from tests.fixtures.organizations import SeededOrganization
from web.console.base import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
AT_ONCE = 4


def at_once(act: Callable[[int], int]) -> list[int]:
    """Have several browsers send something in the same instant; return the statuses, sorted."""
    ready = Barrier(AT_ONCE)

    def run(number: int) -> int:
        ready.wait(60)
        try:
            return act(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sorted(pool.map(run, range(AT_ONCE)))


def test_one_of_several_forms_is_saved(org: SeededOrganization) -> None:
    page = address(org.organization, "project", org.project.id)
    path = address(org.organization, "project_rename", org.project.id)
    clients = [org.browser() for _ in range(AT_ONCE)]
    form = form_to(clients[0].get(page).content, path, page).values

    def save(number: int) -> int:
        return clients[number].post(path, form | {"name": f"Name {number}"}).status_code

    assert at_once(save) == [302, 409, 409, 409]


def test_one_of_several_changes_by_api_is_made(org: SeededOrganization) -> None:
    url = f"/api/v1/organizations/{org.id}/projects/{org.project.id}"
    clients = [org.browser() for _ in range(AT_ONCE)]
    version = clients[0].get(url).headers["etag"]

    def change(number: int) -> int:
        return clients[number].patch(
            url,
            {"name": f"Name {number}"},
            content_type="application/json",
            headers={"if-match": version},
        ).status_code  # fmt: skip

    assert at_once(change) == [200, 409, 409, 409]

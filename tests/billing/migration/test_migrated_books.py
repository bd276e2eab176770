"""The old books, migrated: every balance and every charge is what it was, to the nano."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.books import Books
from tests.fixtures.environment import APP, url_as
from tests.fixtures.old_books import old_books, old_words

pytestmark = pytest.mark.integration
OLD = old_words()["organizations"]
ACROSS = ("2026-10-31", "2026-11-01")
"""The days between which the one event of `months_differ` lies: by its id it is of the first."""


@pytest.fixture(scope="module")
def owner_url(postgres_url: str) -> Iterator[str]:
    with old_books(postgres_url) as url:
        run(url, "platform/manage.py", "prepare_database")
        yield url


@pytest.fixture(scope="module")
def books(owner_url: str) -> Books:
    return Books(owner_url)


@pytest.fixture(scope="module")
def new(owner_url: str) -> dict[str, Any]:
    """What today's code says, by organization."""
    return json.loads(run(owner_url, "-m", "tests.fixtures.migrated_books", old_words()["now"]))


def run(owner_url: str, *arguments: str) -> str:
    """Run today's code on the migrated database, as the application."""
    urls = {"DATABASE_OWNER_URL": owner_url, "DATABASE_URL": url_as(APP, owner_url)}
    settings = {"DJANGO_SETTINGS_MODULE": "tests.fixtures.settings"}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | settings | urls,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("figure", ["balance_nanos", "owed_nanos"])
def test_every_organization_has_what_it_had(new: dict[str, Any], figure: str) -> None:
    assert {id: one[figure] for id, one in new.items()} == {
        id: one[figure] for id, one in OLD.items()
    }


def test_every_grant_has_left_what_it_had_unless_its_time_was_over(new: dict[str, Any]) -> None:
    now = old_words()["now"]
    for organization_id, old in OLD.items():
        for grant_id, grant in old["grants"].items():
            is_over = grant["expires_at"] is not None and grant["expires_at"] <= now
            left = 0 if is_over else grant["remaining_nanos"]
            assert new[organization_id]["grants"][grant_id] == left


def test_the_balance_and_every_limit_know_what_was_charged(
    new: dict[str, Any], books: Books
) -> None:
    """A month is that of the id; the old gateway made the id first and told a later time."""
    told: Counter[str] = Counter()
    for organization_id, old in OLD.items():
        whole = sum(old["budgets"][organization_id]["charged_nanos"].values())
        posted = new[organization_id]["charged_nanos"]
        assert posted[f"balance:{organization_id} 2026-10-01"] == whole
        for budget_id, budget in old["budgets"].items():
            for month, nanos in budget["charged_nanos"].items():
                told[f"limit:{budget_id} {month}"] += nanos
    for names, nanos in [across(books, event_id) for event_id in old_words()["months_differ"]]:
        for name in names:
            told[f"limit:{name} 2026-11-01"] -= nanos
            told[f"limit:{name} 2026-10-01"] += nanos
    found = {
        budget: nanos
        for one in new.values()
        for budget, nanos in one["charged_nanos"].items()
        if budget.startswith("limit:") and nanos
    }
    assert found == {budget: nanos for budget, nanos in told.items() if nanos}


def across(books: Books, event_id: str) -> tuple[list[str], int]:
    """Return whom an event charged, and how much."""
    query = """
        SELECT caller.organization_id, caller.project_id, caller.key_id,
            input_nanos + cached_input_nanos + output_nanos AS nanos
        FROM metering_usage_event AS event
        JOIN metering_caller AS caller ON caller.id = event.caller_id WHERE event_id = %s
    """
    (row,) = books.rows(query, event_id)
    return [row["organization_id"], row["project_id"], row["key_id"]], row["nanos"]


def test_no_lease_of_before_holds_money(new: dict[str, Any]) -> None:
    assert {one["held_nanos"] for one in new.values()} == {0}


def test_every_event_is_charged_and_waived_what_it_was(books: Books) -> None:
    query = """
        SELECT event_id::text, input_nanos + cached_input_nanos + output_nanos AS nanos, is_waived
        FROM metering_usage_event
    """
    events = {
        row["event_id"]: f"0 {row['nanos']}" if row["is_waived"] else f"{row['nanos']} 0"
        for row in books.rows(query)
    }
    assert events == old_words()["events"]


def test_every_day_has_the_usage_it_had(new: dict[str, Any]) -> None:
    for organization_id, old in OLD.items():
        before, after = old["usage_by_day"], new[organization_id]["usage_by_day"]
        for day in after.keys() - set(ACROSS):
            assert usage(after, day) == usage(before, day), (old["name"], day)
        assert usage(after, *ACROSS) == usage(before, *ACROSS), old["name"]


def usage(days: dict[str, Any], *wanted: str) -> Counter[str]:
    """Return the sums of days, TTFT counts by their place; what is 0 is left out."""
    found: Counter[str] = Counter()
    for day in wanted:
        sums = dict(days.get(day, {}))
        counts = sums.pop("ttft_counts", [])
        counts = list(map(int, counts.split())) if isinstance(counts, str) else counts
        found.update(sums | {f"ttft {place}": count for place, count in enumerate(counts)})
    return +found


def test_the_checks_of_the_house_hold(owner_url: str) -> None:
    assert "checks hold" in run(owner_url, "platform/manage.py", "check_integrity")


def test_migrating_again_changes_nothing(owner_url: str, books: Books, new: dict[str, Any]) -> None:
    query = "SELECT * FROM credit_budget ORDER BY id"
    before = books.rows(query)
    assert "has its rights and no more" in run(owner_url, "platform/manage.py", "prepare_database")
    assert books.rows(query) == before

"""The pages on margin and reconciliation: for operators alone; tables, files and charts agree."""

import csv
import json
import re
from io import StringIO

import pytest
from django.test import Client
from django.utils import timezone

from billing.economics.pages.margin_query import DAYS_MAX, parse_query
from control.accounts.models import User
from tests.fixtures.earnings import make_earnings

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
MARGIN = "/admin/economics/enginelife/margin/"
RECONCILIATION = "/admin/economics/enginelife/reconciliation/"
PAGES = [MARGIN, RECONCILIATION, f"{MARGIN}?format=csv", f"{RECONCILIATION}?format=csv"]


def log_in(user):
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator():
    return log_in(User.objects.create_superuser("operator@penstock.test"))


def text(answer):
    assert answer.status_code == 200
    return answer.content.decode()


def lines(answer):
    body = b"".join(answer) if answer.streaming else answer.content
    return list(csv.DictReader(StringIO(body.decode())))


@pytest.mark.parametrize("page", PAGES)
def test_members_see_nothing_and_every_operator_may_look(page):
    assert Client().get(page).status_code == 302
    member = User.objects.create_user("member@acme.test")
    assert log_in(member).get(page).status_code == 302
    clerk = User.objects.create_user("clerk@penstock.test", operator_role="viewer")
    assert log_in(clerk).get(page).status_code == 200


@pytest.mark.parametrize("page", [MARGIN, RECONCILIATION])
def test_empty_books_say_so(operator, page):
    assert "op-empty" in text(operator.get(page))


@pytest.mark.parametrize("by", ["variant", "model", "organization"])
def test_table_chart_and_file_show_the_same_margin(operator, by):
    make_earnings(timezone.now())
    page = text(operator.get(MARGIN, {"by": by}))
    rows = lines(operator.get(MARGIN, {"by": by, "format": "csv"}))
    chart = json.loads(re.search(r'<script id="margin-chart"[^>]*>(.*?)</script>', page)[1])
    for ink, column, is_idle in [
        ("revenue", "revenue_usd", "False"),
        ("served", "cost_usd", "False"),
        ("idle", "cost_usd", "True"),
    ]:
        [series] = [one for one in chart["series"] if one["ink"] == ink]
        drawn = sorted(value for value in series["values"] if value != "0.00")
        filed = [row[column] for row in rows if row["is_idle"] == is_idle]
        assert drawn == sorted(value for value in filed if value != "0.00")
        assert all(f">{shown}</td>" in page for shown in series["shown"] if shown != "$0.00")
    assert {row["costs_shared_by"] for row in rows} == {"by replica and hour, from each request"}
    assert "mdl_" not in re.sub(r'(value|href)="[^"]*"', "", page)


def test_organizations_stand_by_name_with_one_row_of_idle_replicas(operator):
    acme, *_ = make_earnings(timezone.now())
    page = text(operator.get(MARGIN, {"by": "organization"}))
    assert "Acme Robotics" in page
    assert page.count("Idle replicas</th>") == 1
    assert acme.id not in re.sub(r'href="[^"]*"', "", page)


def test_a_range_too_long_is_cut_and_said_so(operator):
    today = timezone.now().date()
    query = parse_query({"from": "2020-01-01", "to": "2099-01-01"}, today)
    assert (query.last, (query.last - query.first).days) == (today, DAYS_MAX - 1)
    assert "31 days at most" in text(operator.get(MARGIN, {"from": "2020-01-01"}))


@pytest.mark.parametrize(
    "value", ["", "x", "9999999-99-99", "0001-01-01", "9999-12-31", "-1", "99", "\u0663", "<b>"]
)
@pytest.mark.parametrize("page", [MARGIN, RECONCILIATION])
def test_senseless_filters_fall_back(operator, page, value):
    names = (
        "from",
        "to",
        "day",
        "by",
        "variant",
        "model",
        "deployment",
        "replica",
        "alarms",
        "page",
    )
    assert "<b>" not in text(operator.get(page, dict.fromkeys(names, value)))


def test_alarms_are_marked_with_the_reasons_in_words(operator):
    make_earnings(timezone.now())
    page = text(operator.get(RECONCILIATION, {"alarms": "1"}))
    assert "No fleet sampled this replica" in page
    rows = lines(operator.get(RECONCILIATION, {"format": "csv"}))
    assert {row["replica_id"] for row in rows} == {"rep_small_1", "rep_large_1", "rep_unknown"}
    dark = [row for row in rows if row["replica_id"] == "rep_unknown"]
    assert {(row["is_sampled"], row["is_alarming"]) for row in dark} == {("False", "True")}
    assert all("test generations" in row["reasons"] for row in rows if row["is_sampled"] == "True")


def test_rows_are_filtered_by_deployment_replica_and_hour(operator):
    make_earnings(timezone.now())
    every = lines(operator.get(RECONCILIATION, {"format": "csv"}))
    [small] = [row for row in every if row["replica_id"] == "rep_small_1"][:1]
    for filters in ({"replica": "rep_small_1"}, {"deployment": small["deployment_id"]}):
        rows = lines(operator.get(RECONCILIATION, {"format": "csv", **filters}))
        assert {row["replica_id"] for row in rows} == {"rep_small_1"}
    hour = int(small["hour_at_utc"][11:13])
    span = {"from": str(hour), "to": str(hour + 1)}
    rows = lines(operator.get(RECONCILIATION, {"format": "csv", **span}))
    assert {row["hour_at_utc"] for row in rows} == {small["hour_at_utc"]}

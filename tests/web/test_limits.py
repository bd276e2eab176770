"""The page of limits and alerts: who looks after the money sets them; others see nothing."""

from itertools import product
from typing import NamedTuple

import pytest
from django.utils import timezone

from billing.alerts.models import Alert, AlertSettings
from billing.alerts.selectors import spent_nanos, standings
from billing.metering.ingest import ingest
from control.api_keys.models import ApiKey
from control.pricing.models import Price
from serving.contract.budget import LIMIT_PERIODS, limit_budget_id
from serving.contract.money import exact_dollars
from tests.fixtures.console import make_request
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.usage import make_batch
from web.console.base import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
KINDS = ("organization", "project", "key")
NEW = {"period": "day", "limit": "12.50", "enforcement": "hard", "percents": "50, 90 %"}


@pytest.fixture
def page(org: SeededOrganization) -> str:
    return address(org.organization, "limits")


def stand(org):
    org.organization.refresh_from_db()
    return standings(org.organization, timezone.now())


def test_a_limit_is_added_changed_and_lifted(org, member, page):
    owner = org.project.id
    reply = member.post(page, NEW | {"owner": owner}, follow=True)
    assert reply.redirect_chain == [(page, 302)]
    [standing] = stand(org)
    assert (standing.limit.limited_id, standing.limit.limit_nanos) == (owner, 12_500_000_000)
    assert (standing.limit.is_hard, standing.alert_percents) == (True, [50, 90])
    text = reply.content.decode()
    assert "$12.50" in text
    assert "50, 90 %" in text
    one = address(org.organization, "limit", standing.limit.budget_id)
    shown = member.get(one).content.decode()
    assert 'value="12.50"' in shown
    changed = {"limit": "3", "enforcement": "soft", "percents": ""}
    assert member.post(one, changed).status_code == 302
    [standing] = stand(org)
    assert (standing.limit.limit_nanos, standing.limit.is_hard) == (3 * 10**9, False)
    assert standing.alert_percents == []
    gone = address(org.organization, "limit_remove", standing.limit.budget_id)
    assert member.post(gone).status_code == 302
    assert stand(org) == []
    assert member.get(one).status_code == 404


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", "-1"), ("limit", "NaN"), ("limit", "1e9"), ("limit", ""),
        ("limit", "99999999999999"), ("period", "year"), ("owner", "org_other"),
        ("percents", "half"), ("percents", "0"), ("enforcement", "maybe"),
    ],
)  # fmt: skip
def test_nonsense_is_told_in_the_form_and_changes_nothing(org, member, page, field, value):
    reply = member.post(page, NEW | {"owner": org.organization.id, field: value})
    assert reply.status_code == 400
    assert 'class="error"' in reply.content.decode() or "alert-bad" in reply.content.decode()
    assert stand(org) == []


class Spent(NamedTuple):
    key: ApiKey
    nanos: int


@pytest.fixture
def spent(key: ApiKey, prices: dict[str, Price]) -> Spent:
    """What the key has spent today, and so its project and organization in every period."""
    now = timezone.now()
    ingest(make_batch([make_request(key, prices["bf16"], now)]), now=now)
    organization = key.project.organization
    return Spent(key, spent_nanos(organization, limit_budget_id(key.id), now))


@pytest.mark.parametrize("limited", list(product(LIMIT_PERIODS, KINDS)))
def test_a_new_limit_that_stops_work_is_confirmed_first(org, member, page, spent, limited):
    period, kind = limited
    owner = {"organization": org.organization, "project": org.project, "key": spent.key}[kind]
    assert spent.nanos > 0
    for nanos in (0, spent.nanos - 1, spent.nanos):
        typed = exact_dollars(nanos)
        asked = NEW | {"owner": owner.id, "period": period, "limit": typed}
        for form in (asked, asked | {"confirmed_nanos": "1"}):
            reply = member.post(page, form)
            text = reply.content.decode()
            assert (reply.status_code, stand(org)) == (400, [])
            assert f'value="{typed}"' in text
            assert f'value="{nanos}" id="id_confirmed_nanos"' in text
            assert (exact_dollars(spent.nanos) in text) == (nanos > 0)
    assert member.post(page, asked | {"confirmed_nanos": str(spent.nanos)}).status_code == 302
    assert [one.limit.limit_nanos for one in stand(org)] == [spent.nanos]


@pytest.mark.parametrize("change", [{"limit": "7"}, {"limit": "0", "enforcement": "soft"}])
def test_a_limit_that_stops_nothing_is_set_at_once(org, member, page, spent, change):
    asked = NEW | {"owner": spent.key.id, "period": "month"} | change
    assert member.post(page, asked).status_code == 302


def test_a_changed_limit_that_stops_more_than_before_is_confirmed_first(org, member, page, spent):
    member.post(page, NEW | {"owner": spent.key.id, "period": "week"})
    where = address(org.organization, "limit", f"limit:{spent.key.id}:week")
    lower = {"limit": "0", "enforcement": "hard", "percents": "100"}
    assert member.post(where, lower).status_code == 400
    assert member.post(where, lower | {"enforcement": "soft"}).status_code == 302
    assert member.post(where, lower).status_code == 400
    assert member.post(where, lower | {"confirmed_nanos": "0"}).status_code == 302
    assert member.post(where, lower | {"percents": "50"}).status_code == 302
    raised = lower | {"limit": exact_dollars(spent.nanos)}
    assert member.post(where, raised).status_code == 302


def test_a_new_key_that_could_spend_nothing_is_confirmed_first(org, member):
    where = address(org.organization, "key_new")
    form = {"name": "Idle", "project": org.project.id, "scopes": "inference", "limit": "$0"}
    reply = member.post(where, form)
    assert "every request of Idle is refused" in reply.content.decode()
    assert not ApiKey.objects.exists()
    assert member.post(where, form | {"confirmed_nanos": "0"}).status_code == 302
    assert ApiKey.objects.get().spend_limit_nanos == 0


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("1.000", ("$1.00", "$1,000.00")),
        ("1,5", ("$1.50", "$15.00")),
        ("12 dollars", ("is not an amount",)),
    ],
)
def test_an_amount_that_cannot_be_read_is_told_with_its_readings(org, member, page, typed, words):
    reply = member.post(page, NEW | {"owner": org.organization.id, "limit": typed})
    text = reply.content.decode()
    assert (reply.status_code, stand(org)) == (400, [])
    assert all(each in text for each in words)


def test_the_amounts_that_the_console_prints_are_taken(org, member, page):
    asked = NEW | {"owner": org.organization.id, "limit": "$1,000.50"}
    assert member.post(page, asked).status_code == 302
    where = address(org.organization, "limit", stand(org)[0].limit.budget_id)
    for typed in ("1,234", "$\u00a01\u202f234.00", "1.234,00"):
        form = {"limit": typed, "enforcement": "hard", "percents": ""}
        assert member.post(where, form).status_code == 302
        assert stand(org)[0].limit.limit_nanos == 1234 * 10**9


def test_a_second_limit_of_a_period_is_refused_in_words(org, member, page):
    asked = NEW | {"owner": org.organization.id}
    member.post(page, asked)
    reply = member.post(page, asked)
    assert reply.status_code == 400
    assert "There is already a limit per day." in reply.content.decode()


def test_alerts_are_chosen(org, member):
    where = address(org.organization, "limit_alerts")
    asked = {"low_balance": "20", "low_runway_days": "", "unusual_factor": "5"}
    assert member.post(where, asked).status_code == 302
    chosen = AlertSettings.objects.get(organization_id=org.organization.id)
    assert (chosen.low_balance_nanos, chosen.low_runway_days, chosen.unusual_factor) == (
        20 * 10**9, None, 5
    )  # fmt: skip
    assert member.post(where, asked | {"unusual_factor": "1"}).status_code == 400


def test_what_was_told_is_shown_in_words(org, member, page):
    now = timezone.now()
    for kind, rule in (("balance.low", "runway"), ("spending.unusual", "day")):
        Alert.objects.create(
            organization_id=org.organization.id, kind=kind, rule=rule, starts_at=now,
            budget_id=f"balance:{org.organization.id}", created_at=now, figures={},
        )  # fmt: skip
    text = member.get(page).content.decode()
    assert "The balance is low" in text
    assert "Spending in a day far above the usual" in text


def test_an_outsider_limits_nobody_else(org, outsider, stranger):
    where = address(outsider.organization, "limits")
    assert stranger.post(where, NEW | {"owner": org.organization.id}).status_code == 400
    assert stand(org) == []

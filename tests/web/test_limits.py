"""The page of limits and alerts: who looks after the money sets them; others see nothing."""

import pytest
from django.utils import timezone

from billing.alerts.models import Alert, AlertSettings
from billing.alerts.selectors import standings
from tests.fixtures.organizations import SeededOrganization
from web.console.base import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
NEW = {"period": "day", "limit": "12.50", "enforcement": "hard", "percents": "50, 90 %"}


@pytest.fixture
def page(org: SeededOrganization) -> str:
    return address(org.organization, "limits")


def stand(org):
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

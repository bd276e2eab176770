"""What the console says where something is overdue, and to whom."""

import pytest
from django.utils import timezone

from billing.collection.models import Case, State
from control.organizations.services import suspend_organization
from control.permissions import Role
from tests.fixtures.collecting import owe, pass_days, pay
from tests.fixtures.organizations import OPERATOR, SeededOrganization, make_organization

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
PAGES = ("overview", "billing", "invoices")


@pytest.fixture
def org() -> SeededOrganization:
    return make_organization("Acme")


@pytest.fixture
def owing(org: SeededOrganization) -> SeededOrganization:
    owe(org)
    return org


def text(org: SeededOrganization, page: str, role: str = Role.OWNER) -> str:
    return org.browser(role).get(f"/{org.id}/{page}").content.decode()


def test_pages_say_what_happened_what_follows_and_where_to_pay(owing):
    pass_days(10)
    browser = owing.browser()
    for page in PAGES:
        shown = browser.get(f"/{owing.id}/{page}").content.decode()
        for words in ("is overdue", "INV-000001", "Your service is limited", "29 November 2026"):
            assert words in shown, page
        assert (f'href="/{owing.id}/billing">Pay</a>' in shown) == (page != "billing")
    assert "overdue" not in text(make_organization("Stranger"), "overview")
    Case.objects.update(waits_for="payment")
    assert "A payment is on its way" in text(owing, "billing")


def test_reminders_and_suspension_have_their_words(owing):
    pass_days(0)
    shown = text(owing, "overview")
    assert "is due" in shown
    assert "18 November 2026" in shown
    pass_days(14, 1)
    assert "requests with your API keys are refused" in text(owing, "overview")


def test_who_sees_no_money_learns_what_happened_and_whom_to_ask(owing):
    pass_days(14)
    for role in (Role.DEVELOPER, Role.VIEWER):
        shown = text(owing, "overview", role)
        assert "requests with your API keys are refused" in shown
        assert "Ask an owner, admin or billing member" in shown
        assert "INV-000001" not in shown
        assert "<strong>A payment is overdue.</strong>" in shown
    pay(owing, at=timezone.now())
    assert Case.objects.get().state == State.CURRENT
    shown = text(owing, "overview")
    assert "overdue" not in shown
    assert "suspended" not in shown


def test_an_operators_suspension_is_said_too(org):
    suspend_organization(actor=OPERATOR, organization=org.organization, reason="abuse")
    for page in ("overview", "billing", "api-keys"):
        assert "Reason: abuse. If you have questions" in text(org, page), page


def test_paying_promises_nothing_where_an_operator_suspended_it(owing):
    suspend_organization(actor=OPERATOR, organization=owing.organization, reason="abuse")
    pass_days(14)
    for page in (*PAGES, "api-keys"):
        shown = text(owing, page)
        assert "Reason: abuse. If you have questions" in shown, page
        assert "Service resumes" not in shown
        assert "Everything works again" not in shown
    assert "is overdue" in text(owing, "overview")

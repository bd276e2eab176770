"""The billing profile's page: who looks after the money says whom invoices are for."""

import pytest
from django.test import Client

from billing.invoicing.models import BillingProfile
from tests.fixtures.organizations import SeededOrganization
from web.console.base import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
PROFILE = {
    "legal_name": "Acme Robotics GmbH",
    "line1": "Werkstr. 1",
    "postal_code": "10115",
    "city": "Berlin",
    "country": "DE",
    "tax_id": "DE136695976",
    "recipients": "books@acme.example\nboss@acme.example",
    "currency": "USD",
    "paper": "a4",
}


@pytest.fixture
def page(org: SeededOrganization) -> str:
    return address(org.organization, "billing_profile")


def test_it_is_saved_and_shown(org: SeededOrganization, member: Client, page: str) -> None:
    assert member.get(page).status_code == 200
    reply = member.post(page, PROFILE, follow=True)
    assert reply.redirect_chain == [(page, 302)]
    saved = BillingProfile.objects.get(organization=org.organization)
    assert (saved.legal_name, saved.country) == ("Acme Robotics GmbH", "DE")
    assert saved.recipients == ["books@acme.example", "boss@acme.example"]
    assert 'value="Acme Robotics GmbH"' in reply.content.decode()


@pytest.mark.parametrize(
    "change",
    [
        {"tax_id": "DE12"},
        {"country": "XX"},
        {"recipients": "no address"},
        {"currency": "ZZZ"},
        {"paper": "a9"},
        {"legal_name": "x" * 300},
        {"city": "Ber\x07lin"},
        {"line1": "𓀀 street"},
    ],
)
def test_what_is_wrong_changes_nothing_and_is_said(
    org: SeededOrganization, member: Client, page: str, change: dict[str, str]
) -> None:
    reply = member.post(page, PROFILE | change)
    assert reply.status_code == 400
    assert 'role="alert"' in reply.content.decode()
    assert not BillingProfile.objects.filter(organization=org.organization).exists()

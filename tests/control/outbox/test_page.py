"""The operator sees what waits and what was given up, and tries again."""

import pytest
from django.test import Client

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.outbox.delivery import PermanentFailure
from control.outbox.models import OutboxMessage
from control.outbox.services import deliver_due
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.outbox import NOW, delivering, failing, put

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
STANDING = "/admin/outbox/outboxmessage/standing/"
LIST = "/admin/outbox/outboxmessage/"


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("operator@penstock.test"))
    return client


@pytest.fixture
def given_up() -> OutboxMessage:
    message = put(kind="note", payload={"id": "inv_1"}, organization_id="org_1")
    with delivering({"note": failing(PermanentFailure("the address does not exist"))}):
        deliver_due(now=NOW)
    return message


def test_an_idle_outbox_says_so(operator: Client) -> None:
    assert "No message is waiting" in operator.get(STANDING).content.decode()


def test_what_was_given_up_is_shown_with_its_reason(
    operator: Client, given_up: OutboxMessage
) -> None:
    page = operator.get(STANDING).content.decode()
    assert "the address does not exist" in page
    assert f"{LIST}{given_up.pk}/change/" in page
    assert "inv_1" in operator.get(f"{LIST}{given_up.pk}/change/").content.decode()


@pytest.mark.parametrize("state", ["waiting", "failing", "given_up", "delivered", "other"])
def test_the_list_filters_by_state(operator: Client, given_up: OutboxMessage, state: str) -> None:
    page = operator.get(f"{LIST}?state={state}").content.decode()
    assert (given_up.key in page) == (state in ("given_up", "other"))


def test_a_retry_is_a_button(operator: Client, given_up: OutboxMessage) -> None:
    url = f"{LIST}{given_up.pk}/retry_one/"
    assert "the address does not exist" in operator.get(url).content.decode()
    given_up.refresh_from_db()
    assert not given_up.is_open  # looking does nothing
    assert "is being retried" in operator.post(url, follow=True).content.decode()
    given_up.refresh_from_db()
    assert given_up.is_open
    assert AuditEvent.objects.filter(action="outbox_message.retried").count() == 1


def test_several_are_retried_from_the_list(operator: Client, given_up: OutboxMessage) -> None:
    form = {"action": "retry", "_selected_action": [given_up.pk]}
    operator.post(LIST, form)
    given_up.refresh_from_db()
    assert given_up.is_open


def test_members_see_none_of_it(org: SeededOrganization) -> None:
    member = org.browser()
    assert member.get(STANDING).status_code == 302
    assert member.get(LIST).status_code == 302

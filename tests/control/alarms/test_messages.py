"""What the outbox gives up is an alarm, with the messages behind it."""

import pytest

from control.alarms.models import AlarmCount
from control.alarms.page import alarm_rows
from control.outbox.delivery import PermanentFailure
from control.outbox.services import deliver_due
from tests.fixtures.outbox import NOW, delivering, failing, put

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.mark.parametrize("organization_id", [None, "org_1"])
def test_a_message_that_is_given_up_is_an_alarm(
    organization_id: str | None, django_capture_on_commit_callbacks
) -> None:
    put(organization_id=organization_id)
    with (
        django_capture_on_commit_callbacks(execute=True),
        delivering({"note": failing(PermanentFailure("no"))}),
    ):
        deliver_due(now=NOW)
    assert AlarmCount.objects.get().organization_id == (organization_id or "")
    [row] = alarm_rows(NOW.date())
    assert row.description.name == "Message given up"
    assert row.url == "/admin/outbox/outboxmessage/?state=given_up"

"""The operator's page: who is where, what follows, and what is done about it."""

import pytest
from django.test import Client
from django.urls import reverse

from billing.collection.models import ScheduledStep, Settings, State
from control.accounts.models import User
from tests.fixtures.collecting import case_of, names, pass_days, published, state_of

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
VERBS = ["pause", "resume", "retry_now", "skip", "limit_now", "suspend_now", "reinstate",
         "write_off"]  # fmt: skip
LIST = "admin:collection_case_changelist"


@pytest.fixture
def staff(db) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("operator@penstock.test"))
    return client


def url(org, verb=""):
    name = f"admin:collection_case_{verb}" if verb else "admin:collection_case_change"
    return reverse(name, args=[org.id])


def test_the_list_shows_who_is_overdue_and_what_follows(staff, org, outsider, owing):
    pass_days(10)
    page = staff.get(reverse(LIST)).content.decode()
    for words in ("Acme", "Limited", "$10.00", "Suspend", "29 November 2026"):
        assert words in page
    assert "Outsider" not in page


def test_the_page_shows_invoices_and_steps(staff, org, owing):
    pass_days(10)
    page = staff.get(url(org)).content.decode()
    for words in (owing.number, "reminded", "limited", "by collection"):
        assert words in page


def test_only_operators_get_there(org, owing):
    pass_days(14)
    for user in (
        org.owner,
        User.objects.create_user("staff@penstock.test", operator_role="support"),
    ):
        client = Client()
        client.force_login(user)
        # Whoever runs the platform may look at the list; to decide is a duty.
        lists = [] if user.operator_role else [reverse(LIST)]
        for path in (url(org), *(url(org, verb) for verb in VERBS), *lists):
            reply = client.post(path, {"reason": "x"})
            assert reply.status_code in (302, 403)
            assert "login" in reply.get("location", "login")
    assert published(org) == "suspended"
    assert len(names(org)) == 6


def test_decisions_are_carried_out_with_a_reason(staff, org, owing):
    pass_days(3)
    assert "required" in staff.post(url(org, "suspend_now"), {"reason": ""}).content.decode()
    assert published(org) == "active"
    reply = staff.post(url(org, "suspend_now"), {"reason": "known for it"}, follow=True)
    assert "Suspend: done" in reply.content.decode()
    assert published(org) == "suspended"
    staff.post(url(org, "reinstate"), {"reason": "they called"})
    assert (published(org), case_of(org).waits_for) == ("active", "pause")
    staff.post(url(org, "resume"), {"reason": "go on"})
    assert case_of(org).paused_at is None


def test_what_a_service_refuses_is_said(staff, org, owing):
    pass_days(3)
    reply = staff.post(url(org, "pause"), {"reason": "x", "until": "2020-01-01"})
    assert "until is 2020-01-01; wanted" in reply.content.decode()
    assert state_of(org) == State.RETRYING


def test_the_schedule_and_the_settings_are_changed_there(staff, org):
    step = ScheduledStep.objects.get(kind="limit")
    path = reverse("admin:collection_scheduledstep_change", args=[step.pk])
    staff.post(path, {"days": "11", "kind": "limit"})
    staff.post(reverse("admin:collection_scheduledstep_add"), {"days": "1", "kind": "retry"})
    days = sorted(ScheduledStep.objects.values_list("days", flat=True))
    assert days == [0, 1, 3, 5, 7, 11, 14]
    reply = staff.post(path, {"days": "30", "kind": "limit"}, follow=True)
    assert "Limiting comes before suspending" in reply.content.decode()
    added = ScheduledStep.objects.get(days=1)
    chosen = {"action": "unschedule", "_selected_action": [added.pk]}
    staff.post(reverse("admin:collection_scheduledstep_changelist"), chosen)
    assert not ScheduledStep.objects.filter(days=1).exists()
    row = Settings.objects.get()
    path = reverse("admin:collection_settings_change", args=[row.pk])
    staff.post(path, {"min_cents": "500", "hour": "7"})
    assert Settings.objects.get().min_cents == 500

"""What operators decide: with a reason, once, logged and audited; nobody else may."""

from datetime import date

import pytest

from billing.collection.models import ScheduledStep, Settings, State, Step
from billing.collection.services import operator
from billing.collection.services.looking import look
from billing.credit.selectors import owed_nanos
from billing.invoicing.services.disputes import open_dispute
from control.audit.models import AuditEvent
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound
from control.outbox.services import deliver_due
from control.permissions import Actor
from tests.fixtures.collecting import (
    case_of,
    day,
    decide,
    names,
    pass_days,
    pay,
    published,
    state_of,
)
from tests.fixtures.invoicing import OPERATOR, sound

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
VERBS = [
    operator.pause, operator.resume, operator.skip, operator.retry_now, operator.limit_now,
    operator.suspend_now, operator.reinstate, operator.write_off,
]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_only_operators_decide_and_they_say_why(org, owing, verb):
    look(now=day(0))
    before = Step.objects.count()
    for actor in (org.actor, Actor.for_user(org.owner)):
        with pytest.raises(NotPermitted):
            decide(verb, org, at=day(1), actor=actor)
    for reason in ("", "  ", "x" * 201):
        with pytest.raises(InvalidValue):
            decide(verb, org, at=day(1), reason=reason)
    assert Step.objects.count() == before


@pytest.mark.parametrize("verb", VERBS)
def test_who_owes_nothing_and_who_does_not_exist_are_no_cases(org, outsider, owing, verb):
    with pytest.raises(Conflict):
        decide(verb, outsider, at=day(1))
    with pytest.raises(ObjectNotFound):
        verb(organization_id="org_nobody", actor=OPERATOR, reason="why", now=day(1))


def test_a_promise_to_pay_holds_all_steps_up_and_gives_a_day_after_it(org, owing):
    pass_days(7)
    decide(operator.pause, org, at=day(8), until=day(20).date(), reason="promised")
    pass_days(20, 8)
    assert (state_of(org), case_of(org).waits_for) == (State.GRACE, "pause")
    look(now=day(21))
    assert state_of(org) == State.GRACE
    look(now=day(22))
    assert state_of(org) == State.LIMITED
    assert AuditEvent.objects.get(action="collection.paused").details["reason"] == "promised"


@pytest.mark.parametrize("until", [date(2026, 1, 1), date(2030, 1, 1)])
def test_a_pause_ends_on_a_day_to_come(org, owing, until):
    look(now=day(0))
    with pytest.raises(InvalidValue) as refusal:
        decide(operator.pause, org, at=day(1), until=until)
    assert refusal.value.param == "until"
    assert case_of(org).paused_at is None


def test_resuming_goes_on_from_the_next_day(org, owing):
    pass_days(7)
    decide(operator.pause, org, at=day(8))
    pass_days(30, 9)
    decide(operator.resume, org, at=day(30))
    look(now=day(30))
    assert state_of(org) == State.GRACE
    look(now=day(31))
    assert state_of(org) == State.LIMITED
    with pytest.raises(Conflict):
        decide(operator.resume, org, at=day(31))


def test_a_step_is_skipped_and_the_next_keeps_its_distance(org, owing):
    pass_days(7)
    decide(operator.skip, org, at=day(8))
    assert (case_of(org).next_kind, case_of(org).next_on) == ("suspend", day(14).date())
    pass_days(13, 9)
    assert state_of(org) == State.GRACE
    look(now=day(14))
    assert state_of(org) == State.SUSPENDED
    with pytest.raises(Conflict):
        decide(operator.skip, org, at=day(15))


def test_retrying_now_reminds_where_nothing_can_be_charged(org, owing):
    look(now=day(0))
    decide(operator.retry_now, org, at=day(1))
    assert names(org)[-1][1] == "retried"
    assert case_of(org).next_on == day(3).date()


def test_measures_ahead_of_the_schedule_count_as_taken(org, owing):
    look(now=day(0))
    decide(operator.limit_now, org, at=day(1))
    assert state_of(org) == State.LIMITED
    assert (case_of(org).next_kind, case_of(org).next_on) == ("suspend", day(14).date())
    with pytest.raises(Conflict):
        decide(operator.limit_now, org, at=day(1))
    decide(operator.suspend_now, org, at=day(2))
    assert (state_of(org), published(org)) == (State.SUSPENDED, "suspended")
    pass_days(30, 3)
    assert [name for name, _ in names(org)].count("suspend") == 0
    pay(org, at=day(31))
    assert published(org) == "active"


def test_nobody_is_suspended_for_what_is_disputed(org, owing):
    look(now=day(0))
    open_dispute(invoice_id=owing.id, key="d", actor=OPERATOR, reason="wrong", now=day(1))
    with pytest.raises(Conflict):
        decide(operator.suspend_now, org, at=day(1))
    assert published(org) == "active"


def test_reinstating_pauses_and_measures_follow_anew(org, owing):
    pass_days(14)
    decide(operator.reinstate, org, at=day(15))
    assert (published(org), state_of(org)) == ("active", State.GRACE)
    pass_days(23, 15)
    assert state_of(org) == State.GRACE
    pass_days(24, 24)
    assert state_of(org) == State.LIMITED
    pass_days(28, 25)
    assert (state_of(org), published(org)) == (State.SUSPENDED, "suspended")
    assert sound()


def test_what_is_written_off_is_owed_no_more_and_stays_suspended_until_reinstated(org, owing):
    pass_days(14)
    decide(operator.write_off, org, at=day(20))
    deliver_due(now=day(20))
    pass_days(40, 21)
    assert owed_nanos(org.id) == 0
    assert (state_of(org), published(org)) == (State.WRITTEN_OFF, "suspended")
    decide(operator.reinstate, org, at=day(41))
    assert (state_of(org), published(org)) == (State.CURRENT, "active")
    assert sound()


def test_the_schedule_is_the_operators(org, owing):
    steps = {step.days: step for step in ScheduledStep.objects.all()}
    operator.schedule_step(actor=OPERATOR, days=4, kind="limit", step=steps[10])
    operator.unschedule_step(actor=OPERATOR, step=steps[14])
    operator.set_settings(actor=OPERATOR, min_cents=50, hour=6)
    pass_days(40)
    assert state_of(org) == State.LIMITED
    assert names(org)[2] == ("limit", "limited")
    assert Settings.objects.get().hour == 6


@pytest.mark.parametrize(
    ("days", "kind", "error"),
    [(3, "retry", Conflict), (12, "limit", Conflict), (0, "suspend", Conflict),
     (400, "retry", InvalidValue), (-1, "retry", InvalidValue), (20, "arrest", InvalidValue)],
)  # fmt: skip
def test_a_schedule_that_makes_no_sense_is_refused(org, days, kind, error):
    with pytest.raises(error):
        operator.schedule_step(actor=OPERATOR, days=days, kind=kind)
    assert ScheduledStep.objects.count() == 6


def test_suspending_never_comes_before_limiting(org):
    suspend = ScheduledStep.objects.get(kind="suspend")
    with pytest.raises(InvalidValue):
        operator.schedule_step(actor=OPERATOR, days=9, kind="suspend", step=suspend)
    with pytest.raises(NotPermitted):
        operator.schedule_step(actor=org.actor, days=20, kind="suspend", step=suspend)
    with pytest.raises(NotPermitted):
        operator.set_settings(actor=org.actor, min_cents=1, hour=1)

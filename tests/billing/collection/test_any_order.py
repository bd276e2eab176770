"""Whatever comes in whatever order: nobody is suspended who owes nothing, disputes it or is just
paying; who pays is served again at once; each step is taken and told once."""

from datetime import datetime, timedelta

import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from billing.collection.models import State, Step
from billing.collection.selectors import debt, on_its_way_cents
from billing.collection.services import operator
from billing.collection.services.looking import look_safely
from billing.invoicing.models import Dispute, Invoice
from billing.invoicing.services.disputes import close_dispute, open_dispute
from billing.payments.models import StripePayment
from control.errors import ServiceError
from control.outbox.models import OutboxMessage
from control.outbox.services import deliver_due
from tests.fixtures.collecting import DUE, Debt, case_of, decide, make_debt, pay, published
from tests.fixtures.invoicing import OPERATOR, sound
from tests.fixtures.organizations import SeededOrganization

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
EXAMPLES = 30
"""Each in a transaction of its own: a long one would keep other workers' followers waiting."""
VERBS = ("pause", "resume", "skip", "retry_now", "limit_now", "suspend_now", "reinstate",
         "write_off")  # fmt: skip
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("days"), st.integers(1, 6)),
        st.tuples(st.just("pay"), st.sampled_from([300, 1000])),
        st.tuples(st.sampled_from(["dispute", "accept", "ask", "fail"]), st.just(0)),
        st.tuples(st.just("decide"), st.sampled_from(VERBS)),
    ),
    max_size=25,
)


class World:
    """One organization that owes 10.00, and its clock."""

    def __init__(self, org: SeededOrganization) -> None:
        self.org = org
        self.invoice = Invoice.objects.get(organization_id=org.id)
        self.now: datetime = DUE - timedelta(days=1)
        self.count = 0

    def do(self, deed: str, what: object) -> None:
        self.count += 1
        self.now += timedelta(seconds=1)
        getattr(self, f"do_{deed}")(what)
        deliver_due(now=self.now)
        self.check()

    def do_days(self, number: int) -> None:
        for _ in range(number):
            before = published(self.org)
            self.now += timedelta(days=1)
            look_safely(self.org.id, now=self.now)
            look_safely(self.org.id, now=self.now)
            if (before, published(self.org)) == ("active", "suspended"):
                owed = debt(self.org.id, self.now)
                assert owed.cents >= 100
                assert not owed.is_met_by(on_its_way_cents(self.org.id, self.now))

    def do_pay(self, cents: int) -> None:
        pay(self.org, cents, at=self.now, key=str(self.count))
        self.check()  # before the outbox or a look comes to it

    def do_dispute(self, _: object) -> None:
        open_dispute(
            invoice_id=self.invoice.id, key=str(self.count), actor=OPERATOR, reason="wrong",
            now=self.now,
        )  # fmt: skip

    def do_accept(self, _: object) -> None:
        for key in Dispute.objects.filter(invoice=self.invoice).values_list("key", flat=True):
            close_dispute(invoice_id=self.invoice.id, key=key, actor=OPERATOR, now=self.now)

    def do_ask(self, _: object) -> None:
        """A payment is on its way, by bank transfer say."""
        StripePayment.objects.create(
            organization_id=self.org.id, mode="test", purpose="top_up", amount_cents=500,
            status="processing", idempotency_key=str(self.count), requested_by="ada",
            created_at=self.now,
        )  # fmt: skip

    def do_fail(self, _: object) -> None:
        rows = StripePayment.objects.filter(organization_id=self.org.id, status="processing")
        rows.update(status="failed", settled_at=self.now)

    def do_decide(self, verb: str) -> None:
        try:
            decide(getattr(operator, verb), self.org, at=self.now)
        except ServiceError:
            return

    def check(self) -> None:
        case = case_of(self.org)
        owed = debt(self.org.id, self.now)
        if case.state == State.WRITTEN_OFF:
            return
        if owed.cents < 100:
            assert (published(self.org), case.state) == ("active", State.CURRENT)
            assert not case.has_measures
        assert (case.suspended_at is not None) == (published(self.org) == "suspended")


@pytest.fixture(name="debt")
def own_debt(transactional_db: None) -> Debt:
    return make_debt()


@settings(
    max_examples=EXAMPLES, deadline=None, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(deeds=DEEDS)
def test_invariants_hold_in_any_order(org, owing, deeds):
    with transaction.atomic():
        live(World(org), deeds)
        assert sound()
        transaction.set_rollback(True)


def live(world: World, deeds: list[tuple[str, object]]) -> None:
    for deed, what in deeds:
        world.do(deed, what)
    world.do("fail", 0)
    world.do("pay", 1000)
    if case_of(world.org).state != State.WRITTEN_OFF:
        assert published(world.org) == "active"
    steps = Step.objects.filter(organization_id=world.org.id)
    mails = OutboxMessage.objects.filter(kind="mail", organization_id=world.org.id)
    told = mails.filter(key__startswith="collection:").count()
    assert told <= steps.count()
